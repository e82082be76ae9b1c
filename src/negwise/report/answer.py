"""The answer: what a page, a terminal and a notebook show first, and the lines that load the model."""

from __future__ import annotations

from dataclasses import dataclass

from negwise.records import Difference, lines_of_use
from negwise.report.comparison import DIFFERENT_DATA
from negwise.report.formatting import format_count, format_seconds, format_signed, metric_name
from negwise.report.model_answer import model_answer
from negwise.report.report_data import ArmRuns, Mean, ReportData
from negwise.report.score_table import ScoreTable, ShareTable, score_stat
from negwise.report.stat_tile import Stat
from negwise.theory.estimate import Estimate

VERDICTS = {
    "ok": "The curves determine K.",
    "capped": "A best K was found, but the curves do not pin down its size. Take it as a direction, not as a number.",
    "vacuous": "The curves do not determine K: no K is better than the others by an amount that matters.",
    "incomplete": "The curves do not have their start, and K depends on it. Evaluate before the first step too.",
    "inconsistent": "The curves contradict each other, so no K should be read from them.",
}
UNSETTLED = "The curves so far determine K, but a longer pilot may say something else."
"""The sentence for the verdict "ok" if K* is a lower bound or not settled."""
_PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


@dataclass(frozen=True)
class Answer:
    """``notices`` come before all else. ``load`` has the two lines of Python that load the model; None without one.

    ``advice`` says which K to take, by ``shares`` of the gain and the time of a step, and ``forecast`` what they rest
    on. ``scores`` has the model beside its baselines.
    """

    headline: str
    lead: str
    stats: tuple[Stat, ...]
    verdict: str | None = None
    load: str | None = None
    notices: tuple[str, ...] = ()
    advice: str | None = None
    forecast: str | None = None
    scores: ScoreTable | None = None
    shares: ShareTable | None = None


def make_answer(report: ReportData) -> Answer:
    """The answer for a job, a sweep, a run, a log or a comparison."""
    load = None if report.model is None else _load_lines(report)
    if report.kind == "run" and not report.paper:
        return Answer(**vars(model_answer(report)), load=load)
    headline, lead, stats = {
        "run": _job_answer,
        "sweep": _sweep_answer,
        "train": _run_answer,
        "log": _log_answer,
        "comparison": _comparison_answer,
    }[report.kind](report)
    estimate = report.estimate
    verdict = None if estimate is None else _verdict_text(estimate)
    return Answer(headline, lead, tuple(stats), verdict, load)


def _verdict_text(estimate: Estimate) -> str:
    return UNSETTLED if estimate.verdict == "ok" and not estimate.settled else VERDICTS[estimate.verdict]


def _k_stat(estimate: Estimate, label: str = "negatives per positive") -> Stat:
    """K and the range as good."""
    if not estimate.determined:
        return Stat(label, "K = ?", note="not determined by these curves")
    low, high = estimate.flat
    note = f"{low} and more are as good" if high is None else f"{low} to {high} are as good"
    if estimate.interval is not None:
        note += f"; 90% interval {estimate.interval[0]:.3g} to {estimate.interval[1]:.3g}"
    return Stat(label, f"{_at_least(estimate)}K = {format_count(estimate.k_int)}", note=note)


def _at_least(estimate: Estimate) -> str:
    return "at least " if estimate.basis == "lower bound" else ""


def _job_answer(report: ReportData) -> tuple[str, str, list[Stat]]:
    estimate, chosen = report.estimate, report.chosen_arm
    headline = "No estimate yet." if estimate is None else estimate.headline()
    stats = [] if estimate is None else [_k_stat(estimate)]
    if chosen is None or not chosen.done:
        return headline, _request_text(report), stats
    baseline = next((arm for arm in report.arms if arm.fixed and arm.k == 1.0), None)
    # If K = 1 was best, the gain and the cost are those of the schedule.
    arm = chosen if chosen is not baseline else next((arm for arm in report.arms if arm.role == "schedule"), chosen)
    lead = f"{_request_text(report)} {chosen.label} was best on validation and is kept as the model."
    if arm is not chosen:
        lead += f" The numbers below compare {arm.name} with it."
    elif arm.role == "extra":
        lead += " The gain and the cost below are those of this model."
        if estimate is not None and estimate.determined and not estimate.as_good(chosen.k or 0.0):
            said = f"{_at_least(estimate)}{estimate.k_int}"
            headline = f"{chosen.label} was best on validation; the curves said {said}."
    stats += [_gain_stat(report, arm, baseline, metric) for metric in report.metrics[:2]]
    return headline, lead, [*stats, _cost_stat(arm, None if arm is baseline else baseline)]


def _sweep_answer(report: ReportData) -> tuple[str, str, list[Stat]]:
    if not any(arm.done for arm in report.arms):
        return "No run of the sweep is done yet.", _request_text(report), []
    stats = []
    for metric in report.metrics[:2]:
        best = _best_arm(report.arms, metric)
        if best is not None:
            test = best.test(metric)
            note = "" if test.value is None else f"test {test.value:.4f}{_error_text(test)}, {_seed_count(test.n)}"
            stats.append(Stat(f"best validation {metric_name(metric)}", best.label, note=note))
    first = _best_arm(report.arms, "auc")
    done = sum(bool(arm.done) for arm in report.arms)
    headline = f"{first.label} is best on validation AUC." if first is not None else "No validation scores."
    lead = f"{_request_text(report)} The best of {done} arms was chosen on validation. Scores are on test."
    total = sum(run.seconds or 0.0 for arm in report.arms for run in arm.seeds)
    runs = sum(len(arm.done) for arm in report.arms)
    return headline, lead, [*stats, Stat("runs trained", f"{runs}", note=f"{format_seconds(total)} in all")]


def _run_answer(report: ReportData) -> tuple[str, str, list[Stat]]:
    arm = report.arms[0]
    run, request = arm.seeds[0], report.settings.get("Run", {})
    headline = f"{request.get('model', 'A model')} trained with {arm.name}"
    stats = [] if report.estimate is None else [_k_stat(report.estimate, "what this run suggests")]
    for metric in report.metrics[:2]:
        value = None if run.test is None else run.test.value(metric)
        if value is not None:
            assert run.test is not None
            stats.append(score_stat(report, run.test, metric))
    if run.seconds is not None:
        steps = format_count(run.steps or 0)
        best = "" if run.best_step is None else f"best at step {format_count(run.best_step)} of {steps}"
        stats.append(Stat("training time", format_seconds(run.seconds), note=best))
    return headline, f"Data: {request.get('data', 'unknown')}, seed {run.seed}.", stats


def _log_answer(report: ReportData) -> tuple[str, str, list[Stat]]:
    estimate = report.estimate
    lead = f"From the log {report.path}."
    if estimate is None:
        return "AUC curves without an estimate", lead, []
    return estimate.headline(), lead, [_k_stat(estimate)]


def _comparison_answer(report: ReportData) -> tuple[str, str, list[Stat]]:
    stats = []
    for metric in () if DIFFERENT_DATA in report.caveats else report.metrics[:2]:
        means = {arm.name: arm.test(metric) for arm in report.arms}
        known = {name: mean for name, mean in means.items() if mean.value is not None}
        if known:
            name, mean = max(known.items(), key=lambda item: item[1].value or 0.0)
            label, note = f"highest test {metric_name(metric)}", f"{name}, {_seed_count(mean.n)}"
            stats.append(Stat(label, f"{mean.value:.4f}", _error_text(mean).strip(), note))
    folders = len({arm.group for arm in report.arms})
    return f"Comparison of {folders} folders", f"{len(report.arms)} arms in all.", stats


def _gain_stat(report: ReportData, arm: ArmRuns, baseline: ArmRuns | None, metric: str) -> Stat:
    """The gain of the arm over K = 1, paired over seeds."""
    mean, name = arm.test(metric), metric_name(metric)
    if mean.value is None:
        return Stat(f"test {name}", "none", note="not evaluated")
    difference = None if baseline is None else _difference(report, arm, baseline, metric)
    if baseline is None or difference is None or difference.mean is None:
        return Stat(f"test {name}", f"{mean.value:.4f}", _error_text(mean).strip(), _seed_count(mean.n))
    other = baseline.test(metric)
    note = f"{mean.value:.4f} against {'?' if other.value is None else f'{other.value:.4f}'} on test"
    label, gain = f"gain in {name} over K = 1", format_signed(difference.mean)
    if difference.se is None:
        return Stat(label, gain, "", f"{note}; one seed, no error bar")
    clear = abs(difference.mean) > 2 * difference.se
    if difference.low is not None and difference.high is not None:
        clear = difference.low > 0 or difference.high < 0
        note += f"; 95% interval {format_signed(difference.low)} to {format_signed(difference.high)}"
    tone = ("up" if difference.mean > 0 else "down") if clear else ""
    note += f", {_seed_count(difference.seeds)}" + ("" if clear else "; within noise")
    return Stat(label, gain, f"{_PLUS_MINUS} {difference.se:.4f}", note, tone)


def _cost_stat(arm: ArmRuns, baseline: ArmRuns | None) -> Stat:
    """Seconds to a trained model, with those of the pilot if the arm uses it."""
    seconds = arm.mean_seconds().value
    if seconds is None:
        return Stat("cost", "unknown", note="no times in the log")
    parts = f"{format_seconds(seconds)} of training"
    if arm.pilot_seconds:
        parts = f"{format_seconds(arm.pilot_seconds)} of pilot and {parts}"
    other = None if baseline is None else baseline.mean_seconds().value
    against = "" if other is None else f"; K = 1: {format_seconds(other)}"
    return Stat("cost of one model", format_seconds(seconds + arm.pilot_seconds), note=f"{parts}{against}")


def _difference(report: ReportData, arm: ArmRuns, baseline: ArmRuns, metric: str) -> Difference | None:
    key = (arm.name, baseline.name, metric)
    return next((one for one in report.differences if (one.arm, one.against, one.metric) == key), None)


def _best_arm(arms: tuple[ArmRuns, ...], metric: str) -> ArmRuns | None:
    """The arm with the highest mean validation score."""
    means = [(arm, arm.val(metric).value) for arm in arms]
    known = [(arm, value) for arm, value in means if value is not None]
    return max(known, key=lambda pair: pair[1])[0] if known else None


def _error_text(mean: Mean) -> str:
    return "" if mean.se is None else f" {_PLUS_MINUS} {mean.se:.4f}"


def _seed_count(n: int) -> str:
    return "1 seed" if n == 1 else f"{n} seeds"


def _request_text(report: ReportData) -> str:
    request = report.settings.get("Request", {})
    what = " on ".join(str(request[name]) for name in ("model", "data") if request.get(name))
    seeds = max((len(arm.seeds) for arm in report.arms), default=0)
    parts = [part for part in (what, _seed_count(seeds) if seeds else "") if part]
    return f"{', '.join(parts)}." if parts else ""


def _load_lines(report: ReportData) -> str:
    """A job is loaded from its folder, whichever of its runs is kept; else the model's own folder."""
    assert report.model is not None
    return lines_of_use(report.model, str(report.path if report.kind == "run" else report.model))
