"""The race: candidates train from the same weights on the same batches, and the best one goes on to the end.

A candidate is a rule for K and a learning rate. All of them train for a sixth of the time that each would have; then
the one with the best validation metric goes on, and nothing starts again. Nobody is dropped before: half-way there the
learning rate still rises, and the order is not that of the end. What a clock or a score decides is written to
``race.jsonl`` first; a job that resumes reads it there, so that it ends with the same weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np

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


def rung_step(candidate: Candidate) -> int:
    """Where the candidate is compared with the others: its evaluation nearest to `RUNG` of its steps."""
    return max(round(RUNG * candidate.steps / candidate.eval_every), 1) * candidate.eval_every


def decide(ranks: Mapping[str, Ranks], step: int, metric: str) -> Decision:
    """Who goes on. The first candidate stays unless another is ahead of it by more than a standard error.

    Differences are paired by query.
    """
    values = {name: query_values(one, metric) for name, one in ranks.items()}
    means = {name: float(np.nanmean(one)) for name, one in values.items()}
    first = next(iter(means))
    best = max(means, key=means.__getitem__)
    within = best != first and means[best] - means[first] <= _error(values[best] - values[first])
    kept = first if within else best
    reason = f"{kept} goes on" + (", within a standard error of the best and the recipe's" if within else "")
    return Decision(step, metric, means, (kept,), tuple(name for name in means if name != kept), reason)


def _error(gaps: np.ndarray) -> float:
    known = gaps[~np.isnan(gaps)]
    return float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else float("inf")


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

        if len(alive) > 1:
            if not log.decisions:
                for one in alive:
                    run_of(one).advance(rung_step(one))
                ranks = {one.name: run_of(one).ranks("val") for one in alive}
                log.add(decide(ranks, rung_step(alive[0]), metric))
            (found,) = log.decisions
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
