"""The race: candidates train from the same weights on the same batches, and the best one goes on to the end.

A candidate is a rule for K and a learning rate. Twice on the way those that are clearly behind are dropped; after a
quarter of the steps the best goes on, and nothing starts again. The recipe's own candidate stays until then, since a
higher rate leads early and not always at the end, and it stays for good unless another is clearly ahead
(docs/log.md). What a clock or a score decides is written to ``race.jsonl`` first; a job that resumes reads it there, so
that it ends with the same weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from negwise.errors import NegwiseError
from negwise.metrics import Ranks
from negwise.metrics.per_query import query_values
from negwise.records import (
    RACE,
    Candidate,
    Comparison,
    Decision,
    Horizon,
    RaceRecord,
    RaceStart,
    RunResult,
    append_race,
    read_race,
)
from negwise.training import OpenRun
from negwise.training.checkpoint import FOLDER as CHECKPOINTS

LOOKS, RUNG = (0.08, 0.16), 0.24
"""Shares of its steps after which a candidate may be dropped, and after which one of them goes on: at 24% the order of
eight races was that of the end, at 16% it was not yet."""
CLEARLY = 0.99
"""The confidence of a paired difference over validation queries that counts."""
LEAST_SHARE = 0.65
"""Of the steps that one plain run has in the same time, the candidate that goes on has this many or more."""
MOST_CANDIDATES = 3
RATES = (1.0, 3.0, 1 / 3)
"""Learning rates that are raced, as multiples of the recipe's."""
FEWEST_STEPS = 40
"""Steps before a rung, without which nothing can be told."""

Floats = NDArray[np.float64]
OpenCandidate = Callable[[Candidate], AbstractContextManager[OpenRun]]


def share_of_survivor(candidates: int) -> float:
    """The share of a plain run's steps that the candidate has that goes on: 1 / (1 + the others' share)."""
    return 1 / (1 + RUNG * (candidates - 1))


def step_at(candidate: Candidate, share: float) -> int:
    """The evaluation of the candidate nearest to ``share`` of its steps; the first at the earliest."""
    return max(round(share * candidate.steps / candidate.eval_every), 1) * candidate.eval_every


def rung_step(candidate: Candidate) -> int:
    """Where it is settled which candidate goes on."""
    return step_at(candidate, RUNG)


def stages_of(candidates: Sequence[Candidate]) -> tuple[float, ...]:
    """Shares of the steps at which candidates are compared; of those with the same evaluation the last one."""
    return tuple({step_at(candidates[0], share): share for share in (*LOOKS, RUNG)}.values())


def look(ranks: Mapping[str, Ranks], step: int, metric: str) -> Decision:
    """Who is dropped on the way: those that are clearly behind the best. The first candidate never is."""
    values, means = _values(ranks, metric)
    first, best = next(iter(means)), max(means, key=means.__getitem__)
    behind = tuple(name for name in means if name != first and clearly_ahead(values[best], values[name]))
    kept = tuple(name for name in means if name not in behind)
    reason = f"{'; '.join(behind)} {'are' if len(behind) > 1 else 'is'} clearly behind" if behind else "all go on"
    return Decision(step, metric, means, kept, behind, reason)


def decide(ranks: Mapping[str, Ranks], step: int, metric: str) -> Decision:
    """Who goes on. The first candidate stays unless another is clearly ahead of it."""
    values, means = _values(ranks, metric)
    first, best = next(iter(means)), max(means, key=means.__getitem__)
    stays = best != first and not clearly_ahead(values[best], values[first])
    kept = first if stays else best
    reason = f"{kept} goes on" + (", the recipe's, which no other is clearly ahead of" if stays else "")
    return Decision(step, metric, means, (kept,), tuple(name for name in means if name != kept), reason)


def without(decision: Decision, failed: Mapping[str, str]) -> Decision:
    """``decision`` with the candidates that could not be trained among the dropped, and why."""
    if not failed:
        return decision
    why = "; ".join(f"{name} failed ({error})" for name, error in failed.items())
    return replace(decision, dropped=(*decision.dropped, *failed), reason=f"{decision.reason}; {why}")


def clearly_ahead(values: Floats, others: Floats) -> bool:
    """Whether the mean difference, paired by query, is above 0 with the confidence `CLEARLY`, by Student's t."""
    gaps = values - others
    gaps = gaps[~np.isnan(gaps)]
    if len(gaps) < 2:
        return False
    error = float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
    return bool(gaps.mean() > stdtrit(len(gaps) - 1, (1 + CLEARLY) / 2) * error)


def _values(ranks: Mapping[str, Ranks], metric: str) -> tuple[dict[str, Floats], dict[str, float]]:
    """The metric of every query, and its mean, by candidate."""
    values = {name: query_values(one, metric) for name, one in ranks.items()}
    return values, {name: float(np.nanmean(one)) for name, one in values.items()}


class RaceLog:
    """The decisions of a race, as far as they are on record."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RACE
        self.records = read_race(self.path)

    def add(self, record: RaceRecord) -> None:
        """Write a decision down, before it is acted on."""
        append_race(self.path, record)
        self.records.append(record)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Who takes part; nobody before the start."""
        return next((record.candidates for record in self.records if isinstance(record, RaceStart)), ())

    @property
    def winner(self) -> Candidate:
        """The candidate that went on, of a race that was decided."""
        kept = self.decisions[-1].kept if self.decisions else ()
        return next((one for one in self.candidates if one.name in kept), self.candidates[0])

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(record for record in self.records if isinstance(record, Decision))

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        return tuple(record for record in self.records if isinstance(record, Comparison))

    @property
    def horizons(self) -> tuple[Horizon, ...]:
        """How long the candidate that goes on may train, as it was planned again and again; the last one counts."""
        return tuple(record for record in self.records if isinstance(record, Horizon))


def race(
    log: RaceLog,
    start: Callable[[], RaceStart],
    open_candidate: OpenCandidate,
    folder_of: Callable[[Candidate], Path],
    finish: Callable[[Candidate, OpenRun], RunResult],
    metric: str,
    say: Callable[[str], None],
) -> tuple[Candidate, RunResult]:
    """Race, and ``finish`` the candidate that goes on. Those that do not keep no checkpoint."""
    if not log.candidates:
        log.add(start())
    alive = log.candidates
    with ExitStack() as stack:
        opened: dict[str, tuple[ExitStack, OpenRun]] = {}

        def run_of(one: Candidate) -> OpenRun:
            if one.name not in opened:
                own = stack.enter_context(ExitStack())
                opened[one.name] = own, own.enter_context(open_candidate(one))
            return opened[one.name][1]

        stages = stages_of(alive)
        for at, share in enumerate(stages):
            if len(alive) == 1:
                break
            if at == len(log.decisions):
                ranks, failed = {}, {}
                for one in alive:
                    try:
                        run_of(one).advance(step_at(one, share))
                        ranks[one.name] = run_of(one).ranks("val")
                    except NegwiseError as error:  # as a learning rate that is too high: the loss is not finite
                        if one is alive[0]:
                            raise
                        failed[one.name] = str(error)
                settle = decide if at == len(stages) - 1 else look
                log.add(without(settle(ranks, step_at(alive[0], share), metric), failed))
            found = log.decisions[at]
            if found.dropped:
                say(describe(found))
            for one in alive:
                if one.name in found.dropped:
                    if one.name in opened:
                        opened.pop(one.name)[0].close()
                    shutil.rmtree(folder_of(one) / CHECKPOINTS, ignore_errors=True)
            alive = tuple(one for one in alive if one.name in found.kept)
        return alive[0], finish(alive[0], run_of(alive[0]))


def describe(decision: Decision) -> str:
    """A decision as a sentence or two."""
    scores = "; ".join(f"{name}: {value:.4f}" for name, value in decision.values.items())
    return f"Race at step {decision.step}, validation {decision.metric}: {scores}: {decision.reason}."
