"""The race: candidates train from the same weights on the same batches, and the best one goes on to the end.

A candidate is a rule for K and a learning rate. Twice on the way those that are clearly behind are dropped; after a
quarter of the steps the best goes on, and nothing starts again. The recipe's own candidate stays until then, since a
higher rate leads early and not always at the end, and it stays for good unless another is clearly ahead
(docs/log.md). The learning rates move to where they win: where another than the recipe's is clearly ahead at the first
comparison, one beyond it joins and catches up. A candidate that breaks down, the recipe's too, is dropped while another
lives.

A K beyond the default rule's is not raced where it is nearly free: over five seeds K for the metric held against the
best fixed K wherever that was decided (docs/log.md, "Online K against the best fixed K"). What a clock or a score
decides is written to ``race.jsonl`` first; a job that resumes reads it there, so that it ends with the same weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from negwise.errors import InputError
from negwise.jobs.step_timing import out_of_memory
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
    TrainingEnd,
    append_race,
    read_race,
)
from negwise.training import OpenRun, ShouldStop
from negwise.training.checkpoint import FOLDER as CHECKPOINTS

LOOKS, RUNG = (0.08, 0.16), 0.24
"""Shares of its steps after which a candidate may be dropped, and after which one of them goes on: at 24% the order of
eight races was that of the end, at 16% it was not yet."""
CLEARLY = 0.99
"""The confidence of a paired difference over validation queries that counts."""
LEAST_SHARE = 0.65
"""Of the steps that one plain run has in the same time, the candidate that goes on has this many or more."""
MOST_CANDIDATES = 3
RATE_STEP = 3.0
"""Learning rates are raced so many times apart: the recipe's, and one step above it. Then one of those beyond."""
FEWEST_STEPS = 40
"""Steps before a rung, without which nothing can be told."""

Floats = NDArray[np.float64]
OpenCandidate = Callable[[Candidate], AbstractContextManager[OpenRun]]


class BrokeDown(InputError):
    """A candidate cannot be trained further, as where its loss is not finite. The message says what to type."""

    def __init__(self, candidate: Candidate, error: Exception) -> None:
        lower = f"{candidate.learning_rate / RATE_STEP:.2g}"
        super().__init__(
            f"{candidate.name}: training broke down ({error}). Type a lower --learning-rate, as --learning-rate {lower}"
        )
        self.why = f"training broke down ({error})"


def advance(
    run: OpenRun, candidate: Candidate, until: int | None = None, should_stop: ShouldStop | None = None
) -> RunResult:
    """`OpenRun.advance`; a step that is refused is told as a failure of ``candidate``."""
    try:
        return run.advance(until, should_stop)
    except InputError as error:
        raise BrokeDown(candidate, error) from error


def share_of_survivor(candidates: int) -> float:
    """The share of a plain run's steps that the candidate has that goes on: 1 / (1 + the others' share)."""
    return 1 / (1 + RUNG * (candidates - 1))


def step_at(candidate: Candidate, share: float) -> int:
    """The evaluation of the candidate nearest to ``share`` of its steps; the first at the earliest."""
    return max(round(share * candidate.steps / candidate.eval_every), 1) * candidate.eval_every


def rung_step(candidate: Candidate) -> int:
    """Where it is settled which candidate goes on: its last evaluation within `RUNG` of its steps.

    Not the nearest one, which could take so much time that less than `LEAST_SHARE` is left for the one that goes on.
    """
    within = int(RUNG * candidate.steps / candidate.eval_every + 1e-9)
    return max(within, 1) * candidate.eval_every


def steps_between_evaluations(steps: int, evaluations: int) -> int:
    """For a candidate of a race, so that one of about so many evaluations is at the rung and none comes after it."""
    return max(int(RUNG * steps / max(round(RUNG * evaluations), 1)), 1)


Judge = Callable[[Mapping[str, Ranks], int, str, str], Decision]
"""A decision from the ranks by candidate, the step, the metric, and the recipe's candidate."""
StepOf = Callable[[Candidate], int]


def stages_of(start: RaceStart) -> tuple[tuple[StepOf, Judge], ...]:
    """Where candidates are compared, and what is decided there; of looks at the same evaluation the last one counts."""
    first = start.candidates[0]
    steps: dict[int, StepOf] = {step_at(first, share): partial(step_at, share=share) for share in LOOKS}
    steps = {at: of for at, of in steps.items() if at < rung_step(first)}
    stages: list[tuple[StepOf, Judge]] = [*((of, look) for of in steps.values()), (rung_step, decide)]
    if start.joins:
        stages.insert(0, (stages[0][0], partial(invite, joins=start.joins)))
    return tuple(stages)


def invite(ranks: Mapping[str, Ranks], step: int, metric: str, recipe: str, *, joins: Sequence[Candidate]) -> Decision:
    """Who joins: the higher rate of ``joins`` where a candidate is clearly ahead of the recipe's, the lower one where
    the recipe's broke down. Else nobody does: a third rate costs the best its time, and a lower rate is behind early on
    even where it ends level (docs/log.md).
    """
    values, means = _values(ranks, metric)
    others = [name for name in means if name != recipe]
    level = Decision(step, metric, means, tuple(means), (), "no other rate is clearly ahead, so none joins")
    if recipe not in means:
        joined, why = min(joins, key=_rate), f"{recipe} broke down"
    elif any(clearly_ahead(values[name], values[recipe]) for name in others):
        joined, why = max(joins, key=_rate), f"{max(others, key=means.__getitem__)} is clearly ahead"
    else:
        return level
    return replace(level, reason=f"{why}, so {joined.name} joins", joined=(joined.name,))


def look(ranks: Mapping[str, Ranks], step: int, metric: str, recipe: str) -> Decision:
    """Who is dropped on the way: those that are clearly behind the best. The recipe's candidate never is."""
    values, means = _values(ranks, metric)
    best = max(means, key=means.__getitem__)
    behind = tuple(name for name in means if name != recipe and clearly_ahead(values[best], values[name]))
    kept = tuple(name for name in means if name not in behind)
    reason = f"{'; '.join(behind)} {'are' if len(behind) > 1 else 'is'} clearly behind" if behind else "all go on"
    return Decision(step, metric, means, kept, behind, reason)


def decide(ranks: Mapping[str, Ranks], step: int, metric: str, recipe: str) -> Decision:
    """Who goes on. The recipe's candidate stays unless another is clearly ahead of it."""
    values, means = _values(ranks, metric)
    best = max(means, key=means.__getitem__)
    stays = best != recipe and recipe in means and not clearly_ahead(values[best], values[recipe])
    kept = recipe if stays else best
    reason = f"{kept} goes on" + (", the recipe's, which no other is clearly ahead of" if stays else "")
    return Decision(step, metric, means, (kept,), tuple(name for name in means if name != kept), reason)


def with_untried(decision: Decision, tried: Sequence[Candidate], recipe: Candidate) -> Decision:
    """``decision`` with the learning rate beyond that of the winner, where none of those that were ``tried`` is there.

    A winner with the recipe's own rate is in the middle of what is known, whatever was tried.
    """
    rates = [one.learning_rate for one in tried]
    rate = next(one.learning_rate for one in tried if one.name in decision.kept)
    if len(decision.kept) > 1 or rate == recipe.learning_rate or rate not in (min(rates), max(rates)):
        return decision
    high = rate == max(rates)
    beyond = float(f"{rate * RATE_STEP if high else rate / RATE_STEP:.2g}")
    told = f"{decision.reason}; a {'higher' if high else 'lower'} learning rate was not tried"
    return replace(decision, reason=told, untried=beyond)


def without(decision: Decision, failed: Mapping[str, str]) -> Decision:
    """``decision`` with the candidates that could not be trained among the dropped, and why."""
    if not failed:
        return decision
    why = "; ".join(f"{name} failed: {error}" for name, error in failed.items())
    return replace(decision, dropped=(*decision.dropped, *failed), reason=f"{decision.reason}; {why}")


def clearly_ahead(values: Floats, others: Floats) -> bool:
    """Whether the mean difference, paired by query, is above 0 with the confidence `CLEARLY`, by Student's t."""
    gaps = values - others
    gaps = gaps[~np.isnan(gaps)]
    if len(gaps) < 2:
        return False
    error = float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
    return bool(gaps.mean() > stdtrit(len(gaps) - 1, (1 + CLEARLY) / 2) * error)


def _rate(candidate: Candidate) -> float:
    return candidate.learning_rate


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
    def start(self) -> RaceStart | None:
        return next((record for record in self.records if isinstance(record, RaceStart)), None)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Who took part so far; nobody before the start."""
        if self.start is None:
            return ()
        joined = {name for decision in self.decisions for name in decision.joined}
        return (*self.start.candidates, *(one for one in self.start.joins if one.name in joined))

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
    def end(self) -> TrainingEnd | None:
        """Where training of the model ended before its time was spent, if it did."""
        return next((record for record in self.records if isinstance(record, TrainingEnd)), None)

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
    if log.start is None:
        log.add(start())
    assert log.start is not None
    alive, recipe = log.candidates, log.candidates[0]
    with ExitStack() as stack:
        opened = OpenCandidates(stack, open_candidate)
        for at, (step_of, judge) in enumerate(stages_of(log.start)):
            if len(alive) == 1:
                break
            if at == len(log.decisions):
                ranks, failed = opened.compare(alive, step_of, recipe)
                found = judge(ranks, step_of(alive[0]), metric, recipe.name)
                if not found.joined:
                    found = with_untried(found, log.candidates, recipe)
                log.add(without(found, failed))
            found = log.decisions[at]
            if found.dropped or found.joined:
                say(describe(found))
            for one in alive:
                if one.name in found.dropped:
                    opened.close(one)
                    shutil.rmtree(folder_of(one) / CHECKPOINTS, ignore_errors=True)
            alive = tuple(one for one in log.candidates if one.name in (*found.kept, *found.joined))
        return alive[0], finish(alive[0], opened.run_of(alive[0]))


class OpenCandidates:
    """The runs of candidates, opened when they are first asked for."""

    def __init__(self, stack: ExitStack, open_candidate: OpenCandidate) -> None:
        self.stack, self.open_candidate = stack, open_candidate
        self.opened: dict[str, tuple[ExitStack, OpenRun]] = {}

    def run_of(self, one: Candidate) -> OpenRun:
        if one.name not in self.opened:
            own = self.stack.enter_context(ExitStack())
            self.opened[one.name] = own, own.enter_context(self.open_candidate(one))
        return self.opened[one.name][1]

    def close(self, one: Candidate) -> None:
        """Let go of its memory."""
        if one.name in self.opened:
            self.opened.pop(one.name)[0].close()

    def compare(
        self, alive: Sequence[Candidate], step_of: StepOf, recipe: Candidate
    ) -> tuple[dict[str, Ranks], dict[str, str]]:
        """Validation ranks of each candidate at its step, and why others could not be trained to there.

        Steps were timed for one candidate alone, so others may not fit into memory beside the recipe's.
        """
        ranks, failed = {}, {}
        for one in alive:
            try:
                run = self.run_of(one)
                advance(run, one, step_of(one))
                ranks[one.name] = run.ranks("val")
            except BrokeDown as error:
                failed[one.name] = error.why
            except RuntimeError as error:
                if one is recipe or not out_of_memory(error):
                    raise
                failed[one.name] = "it does not fit into memory beside the others"
            if one.name in failed:
                self.close(one)
        if not ranks:
            lowest = min(one.learning_rate for one in alive)
            raise InputError(
                f"no candidate could be trained: {'; '.join(f'{name}: {why}' for name, why in failed.items())}. "
                f"Type a lower --learning-rate, as --learning-rate {lowest / RATE_STEP:.2g}, and another --out."
            )
        return ranks, failed


def describe(decision: Decision) -> str:
    """A decision as a sentence or two."""
    scores = "; ".join(f"{name}: {value:.4f}" for name, value in decision.values.items())
    return f"Race at step {decision.step}, validation {decision.metric}: {scores}: {decision.reason}."
