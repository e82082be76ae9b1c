"""From an estimate to what is trained: the schedule, and what it is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from negwise.errors import InputError
from negwise.requests.training_requests import SCHEDULES
from negwise.schedule import check_rule
from negwise.schedule.typed_rules import needs_data
from negwise.theory.estimate import Estimate

EXPLANATIONS = {
    "fixed": "Schedule: K* throughout. In our evidence no schedule gained as much as it lost elsewhere.",
    "warm": "Schedule: K rises to K* over the first tenth and holds. In our evidence it mostly tied with fixed K*.",
    "ans": "Schedule: the paper's ANS, up to K* and back to 1. In our evidence it mostly lost to fixed K*, or tied.",
}
"""What a schedule is, and how it did in the evidence."""
COMMON = 100
"""A K that needs no pilot: in our evidence level with K* on AUC, or ahead of it, so it is tried too."""
MEASURED = (1, 4, 20, COMMON)
"""What is tried where the curves do not determine K; where there are fewer negatives than that, all there are."""
MORE = 4
"""Where K* is a lower bound, so many times K* is tried too."""
BASIS = {"lower bound": "a lower bound", "unsettled": "not settled"}


@dataclass(frozen=True)
class Arm:
    """One way to train: ``rule`` as the command line takes it, its peak ``k``, and what it is there for.

    ``k`` is None where training sets it. ``role`` is "schedule", "K=1", "fixed K*", "extra", "cell" or "model".
    """

    rule: str
    k: float | None
    role: str
    uses_pilot: bool

    @property
    def folder(self) -> str:
        return self.rule.replace(":", "-")


def parse_arm(rule: str, role: str = "cell", uses_pilot: bool = False) -> Arm:
    """An arm from the text of its rule, which is checked."""
    text = rule.strip().lower()
    if (k := _peak(text)) == 0:
        raise InputError(f"k: got {rule}, expected more than 0: without a negative there is nothing to learn from.")
    return Arm(text, k, role, uses_pilot)


def explain_schedule(schedule: str, estimate: Estimate) -> tuple[str, ...]:
    """What the schedule is, where it has a name and there is a K* for it."""
    return (EXPLANATIONS[schedule],) if schedule in EXPLANATIONS and estimate.determined else ()


def arms_of(
    estimate: Estimate, schedule: str, ceiling: float, *, compare: bool = True
) -> tuple[list[Arm], tuple[str, ...]]:
    """What to train after an estimate, and sentences that explain what differs from the usual.

    The usual: the schedule up to K*, K = 1, K* throughout, and 100 where that is more. ``schedule`` is "warm", "ans" or
    "fixed", all up to K*, or a rule of its own such as "warm:20". No K is above ``ceiling``, the negatives that there
    are.
    """
    notes: list[str] = []
    own = ":" in schedule or schedule not in SCHEDULES
    if own:
        check_ceiling(parse_arm(schedule), ceiling)
    if not estimate.determined:
        ks = sorted({math.floor(min(k, ceiling)) for k in MEASURED})
        tried = [parse_arm(str(k), "K=1" if k == 1 else "extra") for k in ks]
        chosen = parse_arm(schedule if own else _ruled(schedule, ks[-1]), "schedule")
        said = f"The curves do not determine K ({estimate.verdict})"
        if compare:
            said += f", so it is measured instead: K = {', '.join(each.rule for each in tried)}."
        else:
            said += f", and nothing is compared: {chosen.rule} is {'what was asked for' if own else 'a guess'}."
        return _distinct([chosen, *(tried if compare else [])]), (said,)
    best = float(estimate.k_int)
    if best > ceiling:
        notes.append(f"K* is {best:g}, but a row has at most {ceiling:g} negatives to draw: K = {ceiling:g} is used.")
        best = math.floor(ceiling)
    found = [parse_arm(schedule, "schedule") if own else parse_arm(_ruled(schedule, best), "schedule", True)]
    if compare:
        found += [parse_arm("1", "K=1"), parse_arm(_text(best), "fixed K*", True)]
        found += _doubtful(estimate, best, ceiling, notes)
        found += _common(max(each.k or 0.0 for each in found), ceiling, notes)
    return _distinct(found), tuple(notes)


def _doubtful(estimate: Estimate, best: float, ceiling: float, notes: list[str]) -> list[Arm]:
    """Arms that an uncertain estimate calls for."""
    found: set[int] = set()

    def also(why: str, *ks: float) -> None:
        tried = {min(max(1, round(k)), math.floor(ceiling)) for k in ks} - {1, best}
        if tried:
            notes.append(f"{why} is tried too: K = {' and '.join(map(str, sorted(tried)))}.")
        found.update(tried)

    if estimate.verdict == "capped" and estimate.interval is not None:
        also("The size of K* is not pinned down; what its interval ends at", *estimate.interval)
    elif estimate.verdict == "capped":
        also("K* lies at the end of the search; what lies well inside", math.sqrt(best))
    if estimate.basis in BASIS and MORE * best > COMMON:  # up to there, COMMON is more
        also(f"The pilot had not converged, and K* is {BASIS[estimate.basis]}; more", MORE * best)
    return [parse_arm(str(k), "extra", True) for k in sorted(found)]


def _common(largest: float, ceiling: float, notes: list[str]) -> list[Arm]:
    """The K that needs no pilot, or as much of it as there is, where no arm has as many already."""
    k = math.floor(min(COMMON, ceiling))
    if k <= largest:
        return []
    what = f"K = {k}" if k == COMMON else f"K = {k}, all that there are,"
    notes.append(
        f"{what} is tried too: in our evidence {COMMON}, which needs no pilot, was level with K* on AUC, or ahead."
    )
    return [parse_arm(str(k), "extra")]


def check_ceiling(asked: Arm, ceiling: float) -> None:
    """Refuse a K that no row can have."""
    if asked.k is not None and asked.k > ceiling:
        raise InputError(
            f"K = {asked.k:g} was asked for ({asked.rule}), but no row has more than {ceiling:g} negatives to draw. "
            f"Ask for {ceiling:g} or less; with texts, --pool sets how many are drawn from."
        )


def _ruled(schedule: str, k: float) -> str:
    return _text(k) if schedule == "fixed" else f"{schedule}:{_text(k)}"


def _text(k: float) -> str:
    """K as a rule has it, to the last digit."""
    return str(int(k)) if k == int(k) else repr(k)


def _peak(rule: str) -> float | None:
    check_rule(rule)
    if needs_data(rule):
        return None
    parts = rule.split(":")
    return float(parts[1] if len(parts) > 1 else parts[0])


def _distinct(arms: list[Arm]) -> list[Arm]:
    """The first arm of each rule: a fixed schedule is its own comparison."""
    found: dict[str, Arm] = {}
    for each in arms:
        found.setdefault(each.rule, each)
    return list(found.values())
