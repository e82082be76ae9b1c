"""K over training, and why it was so large, in plain words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from negwise.records import RunLog
from negwise.report.formatting import metric_name
from negwise.theory.metric_k import INFORMATION, discount_area

NEARLY = 0.9
"""Validation, which sets K, and test, which is on record, may have a few candidates more or less."""


@dataclass(frozen=True)
class KOverTraining:
    """K of the first and of the last step, and what set or bounded the last one."""

    start: float
    end: float
    reason: str | None

    @property
    def text(self) -> str:
        """K = 9 → 374, or K = 100 if it did not move."""
        start, end = format_k(self.start), format_k(self.end)
        return f"K = {end}" if start == end else f"K = {start} \N{RIGHTWARDS ARROW} {end}"


def k_over_training(log: RunLog | None) -> KOverTraining | None:
    """K from the first step to the last; None for a log without steps."""
    known = [record for record in log.steps if record.k is not None] if log is not None else []
    if not known or known[0].k is None or known[-1].k is None:
        return None
    return KOverTraining(known[0].k, known[-1].k, known[-1].k_reason)


def reason_in_words(reason: str | None, rule: str) -> str:
    """The reason of a log record as a sentence; without one, ``rule`` is what set K."""
    if reason is None:
        return "K was typed." if _is_number(rule) else f"K follows the rule {rule}."
    if found := re.fullmatch(r"P\(K\) held at ([\d.e-]+)(, by the win rate)?", reason):
        share = f"{100 * float(found[1]):g}%"
        by = " The win rate stands in for that share." if found[2] else ""
        return f"K grew as far as the model puts a positive above all its negatives in {share} of the rows.{by}"
    if found := re.fullmatch(r"bounded by K for (\S+), ([\d.e+]+)", reason):
        return f"{metric_name(found[1])} asks for {format_k(float(found[2]))}, so K grew no further."
    if reason == "bounded by validation, far behind training":
        return "The last evaluation held K back: the model ranked its training data far better than new data."
    if reason == "bounded by the validation ranks":  # of earlier versions, whatever the training ranks were
        return "The last evaluation held K back."
    if found := re.fullmatch(r"bounded by max_k, ([\d.e+]+)", reason):
        return "This is the largest K allowed: all that a row has, what fits into memory, or what the time allows."
    if found := re.fullmatch(r"min_k, ([\d.e+]+)", reason):
        return f"K is at its floor, {format_k(float(found[1]))}."
    if reason == "nothing seen yet":
        return "Training was too short for K to move."
    return f"What set K: {reason}."


def metric_reason(k: float, metric: str, candidates: float | None, most: float | None = None) -> str:
    """Why ``k`` was the K of the rule ``metric``: a query has ``candidates``, a row at most ``most`` negatives."""
    wanted = None if candidates is None else max(candidates / discount_area(metric, round(candidates)), INFORMATION)
    among = "" if candidates is None else f" among {round(candidates):,} candidates"
    if wanted is None or k >= NEARLY * wanted:
        return f"{metric_name(metric)}{among} asks for {format_k(k)}."
    if most is not None and k >= most:
        return "These are all the negatives that a row has."
    asked = f"{metric_name(metric)}{among} asks for {format_k(wanted)}"
    return f"{asked}. K is what the time allows, or what fits into memory."


def format_k(k: float) -> str:
    """374.3 -> 374, 4.25 -> 4.2, 9 -> 9."""
    return f"{k:,.0f}" if k >= 10 or float(k).is_integer() else f"{k:.1f}"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text) is not None
