"""The answer of the main job: one model, the K it was trained with and why, and how good it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from negwise.report.formatting import format_count, format_seconds, metric_name
from negwise.report.k_in_words import KOverTraining, k_over_training, metric_reason, reason_in_words
from negwise.report.report_data import ArmRuns, ReportData, SeedRun
from negwise.report.score_table import (
    ScoreTable,
    ShareTable,
    baseline_notice,
    baseline_stat,
    baseline_verdict,
    comparison_notice,
    difference_in,
    score_stat,
    score_table,
    share_table,
    strongest,
)
from negwise.report.stat_tile import Stat
from negwise.report.undertrained import HARDLY, find_undertrained, undertrained_text
from negwise.requests import parse_duration
from negwise.theory.gain_advice import Compared, advice, contradiction
from negwise.theory.metric_k import discount_area

_PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
FEW_QUERIES = 50
"""Test queries below which a score says little."""
SIGMAS = 2.0
"""Standard errors that a score must be above that of a random order."""
NO_BETTER = "The model is no better than a random order"
LEAST = 0.1
"""Seconds below which a part of the cost is not named."""


@dataclass(frozen=True)
class ModelAnswer:
    """``notices`` come first: what would mislead a reader who looks at the figures alone."""

    headline: str
    lead: str
    notices: tuple[str, ...]
    stats: tuple[Stat, ...]
    advice: str | None = None
    forecast: str | None = None
    scores: ScoreTable | None = None
    shares: ShareTable | None = None


def model_answer(report: ReportData) -> ModelAnswer:
    """The answer of a job that trains one model; of a job that is not done, what there is."""
    arm = report.chosen_arm
    if arm is None or not arm.done:
        return ModelAnswer("The model is not trained yet.", _request_text(report), (), ())
    run = arm.done[0]
    course = k_over_training(run.log)
    notices = _notices(report, arm, run)
    headline = _headline(report, run, course, notices)
    answer = ModelAnswer(
        headline=headline,
        lead=_request_text(report),
        notices=tuple(_without(headline, notice) for notice in notices),
        stats=tuple(_stats(report, arm, run, course)),
        scores=score_table(report, run),
        shares=share_table(report.shares),
    )
    if not report.shares:
        return answer
    k, compared = arm.k if course is None else course.end, _compared(report)
    return replace(
        answer,
        advice=advice(report.shares, metric_name(report.metrics[0]), k=k, compared=compared),
        forecast=_forecast_text(report, k, compared),
    )


def _compared(report: ReportData) -> list[Compared]:
    """Other K that were trained for the same time, each with the model's lead over it."""
    metric = report.metrics[0]
    trained = [(one.k, difference_in(one, metric)) for one in report.baselines if one.trained]
    return [Compared(k, gap) for k, gap in trained if k is not None and gap is not None]


def _headline(report: ReportData, run: SeedRun, course: KOverTraining | None, notices: Sequence[str]) -> str:
    """What would mislead most; else the score and K."""
    found = strongest(report)
    verdicts = [NO_BETTER, *([] if found is None else [baseline_verdict(*found)]), HARDLY]
    for verdict in verdicts:
        if any(notice.startswith(f"{verdict}: ") for notice in notices):
            return f"{verdict}."
    metric = report.metrics[0]
    value = None if run.test is None else run.test.value(metric)
    score = "A model" if value is None else f"{metric_name(metric)} {value:.3f}"
    return score if course is None else f"{score} with {course.text}"


def _without(headline: str, notice: str) -> str:
    """``notice`` without what the headline says already."""
    rest = notice.removeprefix(f"{headline.removesuffix('.')}: ")
    return f"{rest[0].upper()}{rest[1:]}" if rest.split(" ", 1)[0].islower() else rest  # nDCG@10 keeps its n


def _notices(report: ReportData, arm: ArmRuns, run: SeedRun) -> tuple[str, ...]:
    found = [_no_better_text(report, run), baseline_notice(report, run.test), comparison_notice(report)]
    steps = run.steps or 0
    if run.best_step == 0:
        found.append(
            "Training did not improve the validation score. The weights that were kept are those before training."
        )
    short = find_undertrained(steps, report.epoch, run.best_step, run.log, report.metrics[0])
    if short is not None:
        found.append(undertrained_text(short, steps, run.seconds, report.seconds, _budget(report)))
    queries = None if run.test is None else run.test.queries
    if queries is not None and queries < FEW_QUERIES:
        found.append(f"There are only {queries} test queries, so the scores say little. More data would tell more.")
    found.append(_chance_text(report))
    if len(arm.seeds) > len(arm.done):
        found.append(f"{len(arm.seeds) - len(arm.done)} of {len(arm.seeds)} seeds are not done.")
    return tuple(text for text in found if text is not None)


def _no_better_text(report: ReportData, run: SeedRun) -> str | None:
    """That the test score is within two standard errors of a random order's."""
    metric = report.metrics[0]
    value, error = (None, None) if run.test is None else (run.test.value(metric), run.test.error(metric))
    if value is None or error is None or report.candidates is None:
        return None
    chance = discount_area(metric, round(report.candidates)) / report.candidates
    if value - SIGMAS * error > chance:
        return None
    return (
        f"{NO_BETTER}: {metric_name(metric)} is {value:.4f} {_PLUS_MINUS} {error:.4f}, and a random order of "
        f"{format_count(round(report.candidates))} candidates has {chance:.4f}."
    )


def _chance_text(report: ReportData) -> str | None:
    """That a hit rate is high for any order, where its cut-off has half of the candidates or more."""
    stem, _, cut = report.metrics[0].partition("@")
    if stem != "hit" or report.candidates is None or 2 * int(cut) < report.candidates:
        return None
    return (
        f"Each test query has about {format_count(round(report.candidates))} candidates, so even a random order has "
        f"{metric_name(report.metrics[0])} {min(int(cut) / report.candidates, 1.0):.2f} or more."
    )


def _budget(report: ReportData) -> float | None:
    """Seconds that were asked for; None without a budget, or where steps were."""
    request = report.settings.get("Request", {})
    typed = request.get("budget")
    return None if typed is None or request.get("steps") is not None else parse_duration(str(typed))


def _stats(report: ReportData, arm: ArmRuns, run: SeedRun, course: KOverTraining | None) -> list[Stat]:
    found: list[Stat | None] = []
    if course is not None:
        why = reason_in_words(course.reason, arm.rule)
        if arm.rule == "metric":
            most = next((row.k for row in report.shares if row.all), None)
            why = metric_reason(course.end, report.metrics[0], report.candidates, most)
        found.append(Stat("negatives per positive", course.text, note=why))
    if run.test is not None:
        found += [score_stat(report, run.test, report.metrics[0]), _seeds(arm, run, report.metrics[0])]
    found += [baseline_stat(report), _cost(report, run)]
    return [stat for stat in found if stat is not None]


def _seeds(arm: ArmRuns, run: SeedRun, metric: str) -> Stat | None:
    """The mean over seeds, where there are several."""
    mean = arm.test(metric)
    if mean.value is None or mean.se is None:
        return None
    note = f"{_PLUS_MINUS} is over seeds. The model is seed {run.seed}."
    return Stat(f"mean of {mean.n} seeds", f"{mean.value:.4f}", f"{_PLUS_MINUS} {mean.se:.4f}", note)


def _cost(report: ReportData, run: SeedRun) -> Stat | None:
    """All of the cost: the wall time of the job, and what it went into."""
    if report.seconds is None and run.seconds is None:
        return None
    if report.seconds is None:
        trained = sum(one.seconds or 0.0 for arm in report.arms for one in arm.seeds)
        return Stat("time of training", format_seconds(trained))
    parts = [f"{format_seconds(seconds)} {use}" for use, seconds in report.seconds_by_use.items() if seconds >= LEAST]
    return Stat("cost, all of it", format_seconds(report.seconds), note=", ".join(parts))


def _forecast_text(report: ReportData, k: float | None, compared: Sequence[Compared]) -> str:
    """What the shares rest on, and what counts where a measurement says otherwise."""
    times = "The times were measured on this machine."
    if not any(row.share is not None for row in report.shares):
        return f"{times} The K were compared on this data." if compared else times
    base = f"The shares are forecasts from other data sets. {times}"
    if k is None or not compared:
        return (
            f"{base} No other K was trained on this data. A job with --compare 1,100 trains two more, and what it "
            "measures counts more than a forecast."
        )
    if (found := contradiction(report.shares, k, compared)) is not None:
        return f"{base} {found}"
    if any(one.better or one.worse for one in compared):
        return f"{base} The other K that were trained on this data agree with them."
    return f"{base} The other K that were trained on this data are level with the model, so they test no forecast."


def _request_text(report: ReportData) -> str:
    request = report.settings.get("Request", {})
    plan = report.settings.get("Plan", {})
    model = request.get("model") or plan.get("training", {}).get("model")
    what = " on ".join(str(part) for part in (model, request.get("data")) if part)
    arm = report.chosen_arm
    how = ""
    if arm is not None and arm.done:
        run = arm.done[0]
        if run.steps is not None:
            epochs = f" ({run.steps / report.epoch:.1f} epochs)" if report.epoch else ""
            how = f"{format_count(run.steps)} steps{epochs}"
        if arm.learning_rate is not None:
            how += f"{' at' if how else 'At'} learning rate {arm.learning_rate:g}"
    found = ": ".join(part for part in (what, how) if part)
    return f"{found}." if found else ""
