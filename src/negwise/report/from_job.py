"""The folder of a job: ``job.json``, ``estimate.json``, ``results.json`` and the runs below it, finished or not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from negwise.errors import InputError
from negwise.records import NAME
from negwise.report.fields import Fields, read_object
from negwise.report.from_run import CONFIG, as_k, log_of, recommended_of, scores_of, shown_metrics, trial_of
from negwise.report.subject import Arm, Difference, PilotRun, Subject, Trial, Tuned
from negwise.report.words import VERDICTS
from negwise.theory.estimate import Estimate

JOB, ESTIMATE, RESULTS = "job.json", "estimate.json", "results.json"
KINDS = ("run", "sweep")
STATES = ("done", "failed", "waiting")


def is_job(folder: Path) -> bool:
    return (folder / JOB).is_file()


def job_subject(folder: Path) -> Subject:
    """A job as the subject of a page. What a half-done job does not have yet is said in ``missing``."""
    job = read_object(folder / JOB)
    kind = job.needed_text("kind")
    if kind not in KINDS:
        job.wrong("kind", " or ".join(map(repr, KINDS)))
    estimate = _estimate(folder / ESTIMATE)
    results = read_object(folder / RESULTS) if (folder / RESULTS).is_file() else None
    pilot = _pilot(folder, None if results is None else results.inside("pilot"))
    arms = _found(folder) if results is None else [_arm(folder, arm) for arm in results.each("arms")]
    charged = (pilot.seconds if pilot is not None else None) or 0.0
    arms = [replace(arm, pilot_seconds=charged) if arm.uses_pilot else arm for arm in arms]
    _check_names(folder, arms)
    data, plan = job.inside("data"), job.inside("plan")
    subject = Subject(
        path=folder,
        kind=kind,
        arms=tuple(arms),
        metrics=shown_metrics(trial for arm in arms for trial in arm.done),
        estimates=() if estimate is None else ((folder.name, estimate),),
        pilot=pilot,
        missing=tuple(_missing(kind, estimate, results is not None, pilot, arms)),
        data=None if data is None else data.values,
        notes=() if plan is None else plan.texts("notes"),
        facts=_facts(job, plan),
    )
    return subject if results is None else _with_results(subject, folder, results)


def _with_results(subject: Subject, folder: Path, results: Fields) -> Subject:
    model, metrics = results.text("model"), results.texts("metrics")
    return replace(
        subject,
        metrics=metrics or subject.metrics,
        chosen=results.text("chosen"),
        model=None if model is None else folder / model,
        caveats=results.texts("caveats"),
        differences=tuple(_difference(one) for one in results.each("differences")),
    )


def _estimate(path: Path) -> Estimate | None:
    if not path.is_file():
        return None
    record = read_object(path)
    try:
        found = Estimate.from_dict(record.values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    for name in ("k", "k_int", "margin", "label_separation", "lam", "max_k"):
        record.needed_number(name)
    if record.needed_text("verdict") not in VERDICTS:
        record.wrong("verdict", ", ".join(VERDICTS))
    record.texts("reasons")
    flat, interval = record.numbers_in("flat"), record.numbers_in("interval")
    if len(flat) != 2 or flat[0] is None:
        record.wrong("flat", "[smallest, largest or null]")
    if interval and (len(interval) != 2 or None in interval):
        record.wrong("interval", "null or two numbers")
    for part, names in (("curve", ("k", "v")), ("pilot", ("train_steps", "train_auc", "val_steps", "val_auc"))):
        inside = record.needed_inside(part)
        lengths = [len(inside.numbers_in(name)) for name in names]
        if any(one != two for one, two in zip(lengths[::2], lengths[1::2], strict=True)):
            record.wrong(part, "lists of the same length")
    return found


def _pilot(folder: Path, record: Fields | None) -> PilotRun | None:
    if record is not None:
        run = folder / record.needed_text("run")
        return PilotRun(
            record.number("seconds"), record.number("steps"), record.flag("converged"), record.text("why"), log_of(run)
        )
    found = sorted((folder / "pilot").glob(f"seed-*/{NAME}"))
    if not found:
        return None
    trial = trial_of(found[0].parent)
    return PilotRun(trial.seconds, trial.steps, None, None, trial.log)


def _arm(folder: Path, record: Fields) -> Arm:
    name = record.needed_text("name")
    rule = record.text("rule") or name
    return Arm(
        name=name,
        rule=rule,
        k=record.number("k") or as_k(rule),
        role=record.text("role"),
        trials=tuple(_trial(folder, seed) for seed in record.each("seeds")),
        uses_pilot=record.flag("uses_pilot") or False,
        learning_rate=record.number("learning_rate"),
        tuning=tuple(
            Tuned(
                one.number("learning_rate"),
                _state(one),
                one.number("val_auc"),
                one.number("seconds"),
                one.text("error"),
            )
            for one in record.each("tuning")
        ),
    )


def _trial(folder: Path, record: Fields) -> Trial:
    run = folder / record.needed_text("run")
    return Trial(
        seed=int(record.needed_number("seed")),
        folder=run,
        state=_state(record),
        error=record.text("error"),
        steps=record.number("steps"),
        seconds=record.number("seconds"),
        best_step=record.number("best_step"),
        val=scores_of(record.inside("val")),
        test=scores_of(record.inside("test")),
        recommended=recommended_of(record.inside("recommended")),
        log=log_of(run),
    )


def _state(record: Fields) -> str:
    state = record.needed_text("state")
    return state if state in STATES else record.wrong("state", ", ".join(STATES))


def _found(folder: Path) -> list[Arm]:
    """The arms of a job without results, as far as their runs tell of them."""
    arms = []
    for place in sorted((folder / "arms").glob("*")):
        runs = [run for run in sorted(place.glob("seed-*")) if (run / CONFIG).is_file()]
        if runs:
            config = read_object(runs[0] / CONFIG).needed_inside("run")
            rule = config.text("k") or place.name
            trials = tuple(trial_of(run, _seed(run)) for run in runs)
            arms.append(Arm(rule, rule, as_k(rule), None, trials, learning_rate=config.number("learning_rate")))
    return sorted(arms, key=lambda arm: (arm.k or 0.0, arm.name))


def _seed(run: Path) -> int:
    match = re.fullmatch(r"seed-(\d{1,18})", run.name)
    return int(match[1]) if match else 0


def _difference(record: Fields) -> Difference:
    arm, against, metric = (record.needed_text(name) for name in ("arm", "against", "metric"))
    mean, se, low, high, seeds = (record.number(name) for name in ("mean", "se", "low", "high", "seeds"))
    return Difference(arm, against, metric, mean, se, low, high, seeds)


def _check_names(folder: Path, arms: list[Arm]) -> None:
    names = [arm.name for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{folder / RESULTS}: two arms are called {twice!r}, expected a name each.")


def _missing(
    kind: str, estimate: Estimate | None, has_results: bool, pilot: PilotRun | None, arms: list[Arm]
) -> list[str]:
    found = []
    if kind == "run" and pilot is None:
        found.append("The pilot has not begun.")
    elif kind == "run" and estimate is None:
        found.append("There is no estimate yet: the pilot has not ended.")
    if not has_results:
        found.append("There is no table of results yet; what is shown was read from the runs themselves.")
    waiting = [f"{arm.name} (seed {trial.seed})" for arm in arms for trial in arm.trials if trial.state == "waiting"]
    if waiting:
        more = f" and {len(waiting) - 8} more" if len(waiting) > 8 else ""
        found.append(f"Not trained to the end yet: {', '.join(waiting[:8])}{more}.")
    lost = [
        f"{arm.name} (seed {trial.seed})"
        for arm in arms
        for trial in arm.trials
        if trial.state == "done" and (trial.log is None or not trial.log.steps)
    ]
    if lost:
        found.append(f"The log is gone, so the curves lack: {', '.join(lost[:8])}.")
    return found


def _facts(job: Fields, plan: Fields | None) -> dict[str, dict[str, object]]:
    request, machine, versions = (job.inside(name) for name in ("request", "machine", "versions"))
    planned = {} if plan is None else {name: value for name, value in plan.values.items() if name != "notes"}
    return {
        "Asked for": {} if request is None else dict(request.values),
        "Plan": planned,
        "Machine": {} if machine is None else dict(machine.values),
        "Versions": {"negwise": job.text("negwise"), **({} if versions is None else versions.values)},
    }
