"""The answer, before anything else: K, the range as good, what it gains, what it costs, where the model is."""

from __future__ import annotations

from dataclasses import dataclass

from negwise.records import Difference
from negwise.report.comparison import OTHER_DATA
from negwise.report.subject import Arm, Mean, Subject
from negwise.report.words import UNSETTLED, VERDICTS, count, metric_name, seconds, signed
from negwise.theory.estimate import Estimate

_PM = "\N{PLUS-MINUS SIGN}"


@dataclass(frozen=True)
class Stat:
    """One large number: what it is, its value, its error bar, a note, and whether it is good news."""

    label: str
    value: str
    error: str = ""
    note: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Answer:
    """``load``: the two lines of Python that load the model; None where there is none yet."""

    headline: str
    lead: str
    stats: tuple[Stat, ...]
    verdict: str | None
    load: str | None


def answer(subject: Subject) -> Answer:
    """The answer of a page, by the kind of its subject."""
    headline, lead, stats = {
        "run": _run,
        "sweep": _sweep,
        "train": _train,
        "log": _log,
        "comparison": _comparison,
    }[subject.kind](subject)
    estimate = subject.estimate
    verdict = None if estimate is None else _verdict(estimate)
    return Answer(headline, lead, tuple(stats), verdict, None if subject.model is None else _load(subject))


def _verdict(estimate: Estimate) -> str:
    return UNSETTLED if estimate.verdict == "ok" and not estimate.settled else VERDICTS[estimate.verdict]


def k_stat(estimate: Estimate, label: str = "negatives per positive") -> Stat:
    """K and the range as good."""
    if not estimate.determined:
        return Stat(label, "K = ?", note="not determined by these curves")
    low, high = estimate.flat
    note = f"{low} and more are as good" if high is None else f"{low} to {high} are as good"
    if estimate.interval is not None:
        note += f"; 90% interval {estimate.interval[0]:.3g} to {estimate.interval[1]:.3g}"
    return Stat(label, f"{_bound(estimate)}K = {count(estimate.k_int)}", note=note)


def _bound(estimate: Estimate) -> str:
    return "at least " if estimate.basis == "lower bound" else ""


def _run(subject: Subject) -> tuple[str, str, list[Stat]]:
    estimate, kept = subject.estimate, subject.chosen_arm
    headline = "No estimate yet." if estimate is None else estimate.headline()
    stats = [] if estimate is None else [k_stat(estimate)]
    if kept is None or not kept.done:
        return headline, _about(subject), stats
    base = next((arm for arm in subject.arms if arm.fixed and arm.k == 1.0), None)
    # What K gains is asked even where K = 1 was best: then of the schedule.
    arm = kept if kept is not base else next((arm for arm in subject.arms if arm.role == "schedule"), kept)
    lead = f"{_about(subject)} Best on validation, and kept as the model: {_called(kept)}."
    if arm is not kept:
        lead += f" The numbers below are those of {arm.name} against it."
    elif arm.role == "extra":
        lead += " The gain and the cost below are its own."
        if estimate is not None and estimate.determined and not estimate.as_good(kept.k or 0.0):
            headline = f"{_called(kept)} was best on validation; the curves said {_bound(estimate)}{estimate.k_int}."
    stats += [_gain(subject, arm, base, metric) for metric in subject.metrics[:2]]
    return headline, lead, [*stats, _cost(arm, None if arm is base else base)]


def _sweep(subject: Subject) -> tuple[str, str, list[Stat]]:
    if not any(arm.done for arm in subject.arms):
        return "No cell of the sweep is done yet.", _about(subject), []
    stats = []
    for metric in subject.metrics[:2]:
        best = _best(subject.arms, metric)
        if best is not None:
            test = best.test(metric)
            tells = "" if test.value is None else f"test {test.value:.4f}{_bar(test)}, {_seeds(test.n)}"
            stats.append(Stat(f"best validation {metric_name(metric)}", _called(best), note=tells))
    first = _best(subject.arms, "auc")
    done = sum(bool(arm.done) for arm in subject.arms)
    headline = f"{_called(first)} is best on validation AUC." if first is not None else "No validation scores."
    lead = f"{_about(subject)} Best of {done}, chosen on validation, shown on test."
    total = sum(trial.seconds or 0.0 for arm in subject.arms for trial in arm.seeds)
    cells = sum(len(arm.done) for arm in subject.arms)
    return headline, lead, [*stats, Stat("cells trained", f"{cells}", note=f"{seconds(total)} in all")]


def _train(subject: Subject) -> tuple[str, str, list[Stat]]:
    arm = subject.arms[0]
    trial, run = arm.seeds[0], subject.facts.get("Run", {})
    headline = f"{run.get('model', 'A model')} trained with {arm.name}"
    stats = [] if subject.estimate is None else [k_stat(subject.estimate, "what this run suggests")]
    for metric in subject.metrics[:2]:
        value = None if trial.test is None else trial.test.value(metric)
        if value is not None:
            se = trial.test.auc_se if metric == "auc" and trial.test is not None else None
            bar = "" if se is None else f"{_PM} {se:.4f}"
            stats.append(
                Stat(f"test {metric_name(metric)}", f"{value:.4f}", bar, "error bar over queries" if bar else "")
            )
    if trial.seconds is not None:
        best = "" if trial.best_step is None else f"best at step {count(trial.best_step)} of {count(trial.steps or 0)}"
        stats.append(Stat("training time", seconds(trial.seconds), note=best))
    return headline, f"Data: {run.get('data', 'unknown')}, seed {trial.seed}.", stats


def _log(subject: Subject) -> tuple[str, str, list[Stat]]:
    estimate = subject.estimate
    lead = f"From the log {subject.path}."
    if estimate is None:
        return "AUC curves without an estimate", lead, []
    return estimate.headline(), lead, [k_stat(estimate)]


def _comparison(subject: Subject) -> tuple[str, str, list[Stat]]:
    stats = []
    for metric in () if OTHER_DATA in subject.caveats else subject.metrics[:2]:
        means = {arm.name: arm.test(metric) for arm in subject.arms}
        known = {name: mean for name, mean in means.items() if mean.value is not None}
        if known:
            name, mean = max(known.items(), key=lambda item: item[1].value or 0.0)
            tells = f"{name}, {_seeds(mean.n)}"
            stats.append(Stat(f"highest test {metric_name(metric)}", f"{mean.value:.4f}", _bar(mean).strip(), tells))
    folders = len({arm.group for arm in subject.arms})
    return f"{folders} folders side by side", f"{len(subject.arms)} arms in all.", stats


def _gain(subject: Subject, arm: Arm, base: Arm | None, metric: str) -> Stat:
    """What the arm gains over K = 1, paired over seeds."""
    mean, name = arm.test(metric), metric_name(metric)
    if mean.value is None:
        return Stat(f"test {name}", "none", note="not evaluated")
    found = None if base is None else _difference(subject, arm, base, metric)
    if base is None or found is None or found.mean is None:
        return Stat(f"test {name}", f"{mean.value:.4f}", _bar(mean).strip(), _seeds(mean.n))
    other = base.test(metric)
    note = f"{mean.value:.4f} against {'?' if other.value is None else f'{other.value:.4f}'} on test"
    if found.se is None:
        return Stat(f"gain in {name} over K = 1", signed(found.mean), "", f"{note}; one seed, no error bar")
    clear = abs(found.mean) > 2 * found.se
    if found.low is not None and found.high is not None:
        clear = found.low > 0 or found.high < 0
        note += f"; 95% interval {signed(found.low)} to {signed(found.high)}"
    tone = ("up" if found.mean > 0 else "down") if clear else ""
    note += f", {_seeds(int(found.seeds or 0))}" + ("" if clear else "; within noise")
    return Stat(f"gain in {name} over K = 1", signed(found.mean), f"{_PM} {found.se:.4f}", note, tone)


def _cost(arm: Arm, base: Arm | None) -> Stat:
    """Seconds to a trained model, the pilot charged."""
    own = arm.mean_seconds().value
    if own is None:
        return Stat("cost", "unknown", note="no times were recorded")
    parts = f"{seconds(own)} of training"
    if arm.pilot_seconds:
        parts = f"{seconds(arm.pilot_seconds)} of pilot and {parts}"
    other = None if base is None else base.mean_seconds().value
    against = "" if other is None else f"; K = 1: {seconds(other)}"
    return Stat("cost of one model", seconds(own + arm.pilot_seconds), note=f"{parts}{against}")


def _difference(subject: Subject, arm: Arm, base: Arm, metric: str) -> Difference | None:
    wanted = (arm.name, base.name, metric)
    return next((one for one in subject.differences if (one.arm, one.against, one.metric) == wanted), None)


def _best(arms: tuple[Arm, ...], metric: str) -> Arm | None:
    """The arm with the highest mean validation score."""
    means = [(arm, arm.val(metric).value) for arm in arms]
    known = [(arm, value) for arm, value in means if value is not None]
    return max(known, key=lambda pair: pair[1])[0] if known else None


def _called(arm: Arm) -> str:
    return f"K = {arm.name}" if arm.fixed else arm.name


def _bar(mean: Mean) -> str:
    return "" if mean.se is None else f" {_PM} {mean.se:.4f}"


def _seeds(n: int) -> str:
    return "1 seed" if n == 1 else f"{n} seeds"


def _about(subject: Subject) -> str:
    asked = subject.facts.get("Asked for", {})
    what = " on ".join(str(asked[name]) for name in ("model", "data") if asked.get(name))
    seeds = max((len(arm.seeds) for arm in subject.arms), default=0)
    said = [part for part in (what, _seeds(seeds) if seeds else "") if part]
    return f"{', '.join(said)}." if said else ""


def _load(subject: Subject) -> str:
    return f"from negwise.jobs import load\ntrained = load({str(subject.model)!r})"
