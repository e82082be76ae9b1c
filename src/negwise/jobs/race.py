"""The race: candidates train from the same weights on the same batches, and the best one goes on to the end.

A candidate is a rule for K and a learning rate. All of them train for a sixth of the time that each would have; then
the one with the best validation metric goes on, and nothing starts again. Half-way there a candidate that is behind
beyond doubt is dropped. What a clock or a score decides is written to ``race.jsonl`` first; a job that resumes reads
it there, so that it ends with the same weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from negwise.metrics import Ranks
from negwise.metrics.per_query import query_values
from negwise.records import (
    RACE,
    Candidate,
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

RUNG = 0.17
"""The share of its steps that every candidate trains: at 8% the order was not yet that of the end, at 17% it was."""
SURE = 0.99
"""A candidate is dropped before the rung only where its difference excludes 0 with this confidence."""
LEAST_SHARE = 0.65
"""Of the steps that one plain run has in the same time, the candidate that goes on has this many or more."""
RATES = (1.0, 3.0, 1 / 3)
"""Learning rates that are raced, as multiples of the recipe's."""
FEWEST_STEPS = 40
"""Steps before a rung, without which nothing can be told."""

OpenCandidate = Callable[[Candidate], AbstractContextManager[OpenRun]]


def share_of_survivor(candidates: int) -> float:
    """The share of a plain run's steps that the candidate has that goes on: 1 / (1 + the others' share)."""
    return 1 / (1 + RUNG * (candidates - 1))


def rung_step(candidate: Candidate, share: float) -> int:
    """The evaluation nearest to ``share`` of the candidate's steps."""
    return max(round(share * candidate.steps / candidate.eval_every), 1) * candidate.eval_every


@dataclass(frozen=True)
class Rung:
    """Where candidates are compared. ``early``: only those are dropped that are behind beyond doubt."""

    share: float
    early: bool

    def steps(self, candidates: Sequence[Candidate]) -> dict[str, int]:
        return {one.name: rung_step(one, self.share) for one in candidates}


def rungs_of(candidates: Sequence[Candidate]) -> tuple[Rung, ...]:
    """One rung, and an early one half-way where an evaluation lies between."""
    if len(candidates) == 1:
        return ()
    early, last = Rung(RUNG / 2, True), Rung(RUNG, False)
    return (early, last) if all(rung_step(one, RUNG / 2) < rung_step(one, RUNG) for one in candidates) else (last,)


def decide(ranks: Mapping[str, Ranks], rung: Rung, step: int, metric: str) -> Decision:
    """Who goes on. The first candidate stays unless another is ahead of it by more than a standard error.

    Differences are paired by query.
    """
    values = {name: query_values(one, metric) for name, one in ranks.items()}
    means = {name: float(np.nanmean(one)) for name, one in values.items()}
    first = next(iter(means))
    best = max(means, key=means.__getitem__)
    if best != first and means[best] - means[first] <= _error(values[best] - values[first]):
        best = first
    others = [name for name in means if name != best]
    if rung.early:
        dropped = [name for name in others if _surely_behind(values[best] - values[name])]
        reason = f"behind {best} at {SURE:.0%} confidence" if dropped else "no candidate is behind beyond doubt"
    else:
        dropped = others
        ahead = " (within a standard error of the best, and the recipe's)" if means[best] < max(means.values()) else ""
        reason = f"{best} goes on{ahead}"
    kept = tuple(name for name in means if name not in dropped)
    return Decision(step, metric, means, kept, tuple(dropped), reason)


def _error(gaps: np.ndarray) -> float:
    known = gaps[~np.isnan(gaps)]
    return float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else float("inf")


def _surely_behind(gaps: np.ndarray) -> bool:
    """Whether the mean of ``gaps`` (Q,) is above 0 beyond doubt."""
    known = gaps[~np.isnan(gaps)]
    if len(known) < 2:
        return False
    return bool(known.mean() > stats.t.ppf((1 + SURE) / 2, len(known) - 1) * _error(gaps))


class RaceLog:
    """The decisions of a race: ``next(kind)`` is the one that is on record, `add` one that is new."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RACE
        self.records = read_race(self.path)
        self._read = 0

    def next(self) -> RaceRecord | None:
        """The next decision on record, if there is one."""
        if self._read == len(self.records):
            return None
        self._read += 1
        return self.records[self._read - 1]

    def add(self, record: RaceRecord) -> RaceRecord:
        append_race(self.path, record)
        self.records.append(record)
        self._read += 1
        return record

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Who takes part; nobody before the start."""
        return next((record.candidates for record in self.records if isinstance(record, RaceStart)), ())

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(record for record in self.records if isinstance(record, Decision))

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
    begun = log.next() or log.add(start())
    assert isinstance(begun, RaceStart)
    alive = list(begun.candidates)
    with ExitStack() as stack:
        opened: dict[str, tuple[ExitStack, OpenRun]] = {}

        def run_of(one: Candidate) -> OpenRun:
            if one.name not in opened:
                own = stack.enter_context(ExitStack())
                opened[one.name] = own, own.enter_context(open_candidate(one))
            return opened[one.name][1]

        for rung in rungs_of(begun.candidates):
            found = log.next()
            if found is None:
                for one in alive:
                    run_of(one).advance(rung_step(one, rung.share))
                ranks = {one.name: run_of(one).ranks("val") for one in alive}
                found = log.add(decide(ranks, rung, rung_step(alive[0], rung.share), metric))
            assert isinstance(found, Decision)
            say(describe(found))
            for one in alive:
                if one.name in found.dropped:
                    if one.name in opened:
                        opened.pop(one.name)[0].close()
                    shutil.rmtree(folder_of(one) / CHECKPOINTS, ignore_errors=True)
            alive = [one for one in alive if one.name in found.kept]
            if len(alive) == 1:
                break
        return alive[0], finish(alive[0], run_of(alive[0]))


def describe(decision: Decision) -> str:
    """A decision as a sentence or two."""
    scores = "; ".join(f"{name}: {value:.4f}" for name, value in decision.values.items())
    return f"Race at step {decision.step}, validation {decision.metric}: {scores}: {decision.reason}."
