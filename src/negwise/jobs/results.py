"""What came out of a job: every seed of every arm, differences with their error, caveats; the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from negwise.errors import NegwiseError
from negwise.inference import TrainedModel, load
from negwise.jobs.arms import Arm, parse_arm
from negwise.jobs.grid import Grid
from negwise.jobs.worker_pool import failure_of
from negwise.records import (
    JOB,
    RESULT,
    RESULTS,
    ArmResult,
    Candidate,
    Decision,
    Difference,
    GainShare,
    PilotResult,
    Results,
    SeedResult,
    TrainingEnd,
    encode,
    read_record,
    read_result,
    read_run,
    write_record,
)
from negwise.report.answer import Answer, make_answer
from negwise.report.from_job import job_report_data
from negwise.report.notebook import answer_html
from negwise.requests import RunRequest
from negwise.theory.estimate import Estimate
from negwise.theory.separation import separation

BASE = "1"
"""The rule that the others are compared with."""
FEW = 5
"""Seeds below which nothing is claimed."""
FURTHER = 1.1
"""A K = 1 whose validation separation is so many times the pilot's has learnt more than the pilot did."""


@dataclass(frozen=True)
class JobResult:
    """What a job came to: its folder, the content of ``results.json``, and the estimate where there was a pilot."""

    folder: Path
    record: Results
    estimate: Estimate | None = None

    @property
    def k(self) -> float | None:
        """The K, or the peak of the schedule, of the model that is kept."""
        return next((arm.k for arm in self.record.arms if arm.name == self.record.chosen), None)

    @property
    def metric(self) -> str:
        """The metric that decided which model is kept."""
        return self.record.metrics[0]

    @property
    def shares(self) -> tuple[GainShare, ...]:
        """The forecast share of the gain at a few K, beside the seconds of a step."""
        return self.record.shares

    @property
    def model(self) -> TrainedModel:
        """The model that is kept, ready to be used: see `negwise.load`."""
        if self.record.model is None:
            raise NegwiseError(f"{self.folder}: no run came to an end; each says why in its failed.json.")
        return load(self.folder / self.record.model)

    @property
    def answer(self) -> Answer:
        """What the page shows first, from the records in the folder."""
        return make_answer(job_report_data(self.folder))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; ``answer`` is what the page and the terminal say."""
        found = {**encode(self.record), "out": str(self.folder)}
        return {**found, "answer": encode(self.answer)} if (self.folder / JOB).is_file() else found

    def _repr_html_(self) -> str:
        """The answer as a table, for notebooks."""
        return answer_html(self.answer)


def collect_and_write(
    grid: Grid,
    kind: str,
    metrics: Sequence[str],
    pilot: PilotResult | None,
    estimate: Estimate | None,
    notes: tuple[str, ...],
) -> JobResult:
    """Write ``results.json`` of a grid that may be half done."""
    found = collect_results(grid, kind=kind, metrics=metrics, pilot=pilot)
    found = replace(found, caveats=(*notes, *caveats_of(found, estimate)))
    found = _with_known_facts(found, grid.out / RESULTS)
    write_record(grid.out / RESULTS, found)
    return JobResult(grid.out, found, estimate)


def _with_known_facts(found: Results, path: Path) -> Results:
    """``found`` with what ``path`` knows already of the same runs, so that nothing is ranked or timed again."""
    before = read_record(Results, path) if path.is_file() else None
    if before is None or not before.baselines or (before.arms, before.model) != (found.arms, found.model):
        return found
    known = ("baselines", "corpus", "candidates", "shares", "seconds", "caveats")
    return replace(found, **{name: getattr(before, name) for name in known})


def collect_race(
    folder: Path,
    request: RunRequest,
    metrics: Sequence[str],
    winner: Candidate | None,
    decisions: tuple[Decision, ...],
    notes: tuple[str, ...] = (),
    end: TrainingEnd | None = None,
) -> JobResult:
    """Write ``results.json`` of the main job, which may be half done: ``winner`` is the candidate that went on.

    ``notes`` are caveats beside those that follow from the results."""
    arms = []
    if winner is not None:
        home = folder / "runs" / winner.folder
        seeds = range(request.seed, request.seed + request.seeds)
        places = {seed: home / f"seed-{seed}" for seed in seeds}
        k = parse_arm(winner.rule).k
        arms = [
            ArmResult(
                name=winner.rule,
                rule=winner.rule,
                k=last_k(list(places.values())) if k is None else k,
                role="model",
                uses_pilot=False,
                learning_rate=winner.learning_rate,
                tuning=(),
                seeds=tuple(seed_result(folder, place, seed) for seed, place in places.items()),
            )
        ]
    chosen = _chosen(arms, metrics[0])
    found = Results(
        kind="run",
        arms=tuple(arms),
        metrics=tuple(metrics),
        chosen=None if chosen is None else chosen.name,
        model=None if chosen is None else chosen.done[0].run,
        decisions=decisions,
        end=end,
    )
    found = _with_known_facts(replace(found, caveats=(*notes, *caveats_of(found, None))), folder / RESULTS)
    write_record(folder / RESULTS, found)
    return JobResult(folder, found)


def write_page(folder: Path, log: Callable[[str], None]) -> None:
    """Write ``report.html``. Where that fails, what was trained stands, and ``log`` receives the reason."""
    try:
        from negwise.report.write_report import write_report

        log(f"Report: {write_report([folder])}")
    except NegwiseError as error:
        log(f"No report was made: {error}. Then type: negwise report {folder}")


def collect_results(grid: Grid, *, kind: str, metrics: Sequence[str], pilot: PilotResult | None) -> Results:
    """The content of ``results.json``, of a grid that may be half done; without caveats."""
    arms = tuple(_arm(grid, arm) for arm in grid.arms)
    chosen = _chosen(arms, metrics[0])
    base = next((arm for arm in arms if arm.rule == BASE), None)
    others = [arm for arm in arms if arm is not base] if base is not None else []
    return Results(
        kind="run" if kind == "run" else "sweep",
        arms=arms,
        metrics=tuple(metrics),
        pilot=pilot,
        chosen=None if chosen is None else chosen.name,
        model=None if chosen is None else chosen.done[0].run,
        differences=tuple(_difference(arm, base, name) for arm in others for name in metrics if base is not None),
    )


def mean_over_seeds(arm: ArmResult, metric: str, split: str = "test") -> tuple[float | None, float | None, int]:
    """Mean over seeds, its standard error (None with one seed), and how many seeds there are."""
    values = [value for seed in arm.seeds if (value := score_of(seed, metric, split)) is not None]
    if not values:
        return None, None, 0
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return float(np.mean(values)), error, len(values)


def score_of(seed: SeedResult, metric: str, split: str = "test") -> float | None:
    """A metric of a run that is done; None where there is none."""
    scores = seed.test if split == "test" else seed.val
    return None if scores is None else scores.value(metric)


def _arm(grid: Grid, arm: Arm) -> ArmResult:
    choice, tried = grid.choice(arm), grid.tried(arm)
    failed = [f"learning rate {row.learning_rate:g} failed: {row.error}" for row in tried if row.error]
    no_rate = "; ".join(failed) if choice is None and failed else None
    return ArmResult(
        name=arm.rule,
        rule=arm.rule,
        k=last_k([grid.folder(arm, seed) for seed in grid.seeds]) if arm.k is None else arm.k,
        role=arm.role,
        uses_pilot=arm.uses_pilot,
        learning_rate=None if choice is None else choice.learning_rate,
        tuning=tried,
        seeds=tuple(seed_result(grid.out, grid.folder(arm, seed), seed, no_rate) for seed in grid.seeds),
    )


def last_k(folders: Sequence[Path]) -> float | None:
    """K at the end of training, on average over runs that are done, of a rule that sets it while it trains."""
    logs = [read_run(folder) for folder in folders if (folder / RESULT).exists()]
    last = [log.steps[-1].k for log in logs if log.steps]
    known = [k for k in last if k is not None]
    return float(np.mean(known)) if known else None


def seed_result(out: Path, folder: Path, seed: int, no_rate: str | None = None) -> SeedResult:
    """One seed of an arm; ``no_rate`` says why the arm has no learning rate, where that is so."""
    result, failure = read_result(folder), failure_of(folder)
    run = folder.relative_to(out).as_posix()
    if result is None:
        error = no_rate or (None if failure is None else failure.error)
        return SeedResult(seed, run, "waiting" if error is None else "failed", error)
    return SeedResult(
        seed,
        run,
        "done",
        steps=result.steps,
        seconds=result.seconds,
        best_step=None if result.best is None else result.best.step,
        val=result.evaluations.get("val"),
        test=result.evaluations.get("test"),
        recommended=result.recommended,
    )


def _chosen(arms: Sequence[ArmResult], metric: str) -> ArmResult | None:
    """The arm with the best validation score; of equal ones the first, which is the schedule."""
    scored = [(mean_over_seeds(arm, metric, "val")[0], arm) for arm in arms]
    done = [(score, arm) for score, arm in scored if score is not None]
    return max(done, key=lambda pair: pair[0])[1] if done else None


def _difference(arm: ArmResult, base: ArmResult, metric: str) -> Difference:
    """Mean over seeds of (arm - base), paired by seed, with its 95% interval by Student's t."""
    theirs = {seed.seed: score_of(seed, metric) for seed in base.seeds}
    gaps = [
        value - other
        for seed in arm.seeds
        if (value := score_of(seed, metric)) is not None and (other := theirs.get(seed.seed)) is not None
    ]
    mean = float(np.mean(gaps)) if gaps else None
    if mean is None or len(gaps) < 2:
        return Difference(arm.name, base.name, metric, len(gaps), mean)
    error = float(np.std(gaps, ddof=1) / math.sqrt(len(gaps)))
    reach = float(stats.t.ppf(0.975, len(gaps) - 1)) * error
    return Difference(arm.name, base.name, metric, len(gaps), mean, error, mean - reach, mean + reach)


def caveats_of(results: Results, estimate: Estimate | None) -> tuple[str, ...]:
    """What a reader of these results should keep in mind, a sentence each."""
    arms = results.arms
    seeds = max((mean_over_seeds(arm, "auc")[2] for arm in arms), default=0)
    found = []
    if len(arms) == 1:
        pass  # nothing is compared
    elif seeds == 1:
        found.append("One seed: differences between arms have no error bar. Pass --seeds 5 for one.")
    elif 0 < seeds < FEW:
        found.append(f"{seeds} seeds: the intervals are wide, and a claim about quality needs {FEW}.")
    failed = [f"{arm.name} seed {seed.seed}" for arm in arms for seed in arm.seeds if seed.state == "failed"]
    if failed:
        found.append(f"Failed: {', '.join(failed)}. The same command tries them again.")
    found += [
        f"Learning rate {row.learning_rate:g} could not be trained for {arm.name}: {row.error}"
        for arm in arms
        for row in arm.tuning
        if row.error and arm.learning_rate is not None
    ]
    edges = [arm.name for arm in arms if len(arm.tuning) > 1 and _at_edge(arm)]
    if edges:
        found.append(
            f"The learning rate chosen for {', '.join(edges)} is the smallest or largest that was tried: a wider "
            "choice may change the comparison. --learning-rate moves it."
        )
    untrained = [arm.name for arm in arms if arm.done and all(seed.best_step == 0 for seed in arm.done)]
    if untrained and (len(arms) > 1 or results.kind == "sweep"):  # of one model the answer says it first
        found.append(
            f"Training did not raise the validation score of {', '.join(untrained)}: the weights kept are those before "
            "it. Train longer (--steps), or at other learning rates."
        )
    if estimate is not None:
        found += _learnt_less(results) + _disagreement(results, estimate)
        found.append("K* follows from AUC. Top-n metrics need more negatives than AUC does: compare both columns.")
    return tuple(found)


def _at_edge(arm: ArmResult) -> bool:
    """Whether the rate chosen is the smallest or largest; not where all of them came to the same."""
    rates = [row.learning_rate for row in arm.tuning]
    scores = {row.val_auc for row in arm.tuning}
    return arm.learning_rate in (min(rates), max(rates)) and (len(scores) > 1 or scores == {None})


def _learnt_less(results: Results) -> list[str]:
    """Where K = 1, with a learning rate of its own, came further than the pilot that the estimate rests on."""
    base = next((arm for arm in results.arms if arm.rule == BASE), None)
    pilot = None if results.pilot is None else results.pilot.val_auc
    reached = None if base is None else mean_over_seeds(base, "auc", "val")[0]
    if base is None or pilot is None or reached is None or _separation(reached) <= FURTHER * _separation(pilot):
        return []
    return [
        f"K = 1 reached a validation AUC of {reached:.3f} at learning rate {base.learning_rate:g}, the pilot "
        f"{pilot:.3f}: K* comes from a model that had learnt less. A pilot at that rate (--learning-rate) may give "
        "another."
    ]


def _separation(auc: float) -> float:
    """Without bound for an AUC of 0 or 1, as few queries may have."""
    return float(separation(auc)) if 0 < auc < 1 else math.copysign(math.inf, auc - 0.5)


def _disagreement(results: Results, estimate: Estimate) -> list[str]:
    """Where the best K that was trained lies outside what the estimate calls as good."""
    chosen = next((arm for arm in results.arms if arm.name == results.chosen), None)
    if chosen is None or chosen.role != "extra" or chosen.k is None:
        return []
    if not estimate.determined or estimate.as_good(chosen.k):
        return []
    low, high = estimate.flat
    if estimate.basis == "lower bound" and chosen.k > low:
        return [f"K = {chosen.name} was best on validation; the estimate, {estimate.k_int}, was a lower bound."]
    good = f"{low:g} and more" if high is None else f"{low:g} to {high:g}"
    return [
        f"K = {chosen.name} was best on validation, and the estimate has {good} as good: here the two disagree, and "
        "the measurement counts."
    ]
