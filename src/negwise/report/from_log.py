"""`ReportData` from a log of another framework: its AUC curves, read by `negwise.curves`, and their estimate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from negwise.curves import Curves, read
from negwise.errors import InputError
from negwise.records import EvalRecord, RunLog
from negwise.report.report_data import ArmRuns, ReportData, SeedRun
from negwise.theory.estimate import Estimate

UNKNOWN_K = (
    "The estimate takes these curves for those of a run with K = 1. A log does not say which K it was trained with."
)
CAVEATS = (
    "AUC must be the same function for training and validation, in evaluation mode, with negatives drawn as in "
    "training. A log does not say how its AUC was computed.",
)


def log_report_data(
    path: Path, columns: Mapping[str, str | None] | None = None, run_name: str | None = None
) -> ReportData:
    """The data for the page of a log. ``columns`` and ``run_name``: see `negwise.curves.read`."""
    curves = read(path, columns=columns, run=run_name)
    both = curves.train_auc is not None and curves.val_auc is not None
    name = path.parent.name if path.is_file() and path.name in ("metrics.csv", "trainer_state.json") else path.stem
    run = SeedRun(0, str(path), "done", log=RunLog(evals=tuple(_eval_records(curves))))
    return ReportData(
        path=path,
        kind="log",
        arms=(ArmRuns(name or str(path), "", None, None, False, None, (), (run,)),),
        estimates=((path.name, estimate_from_curves(curves)),) if both else (),
        caveats=(() if curves.trained_k is not None else (UNKNOWN_K,)) + CAVEATS if both else (),
        missing=() if both else (_why_no_estimate(path, curves),),
        settings={"Log": {"file": curves.source, "kind": curves.kind, **curves.columns}},
    )


def _why_no_estimate(path: Path, curves: Curves) -> str:
    lacks = "training" if curves.train_auc is None else "validation"
    others = f" (is it {', '.join(curves.unassigned)}?)" if curves.unassigned else ""
    return (
        f"No estimate: the log has no {lacks} AUC{others}. Name the columns: negwise report {path} "
        "--train-column NAME --val-column NAME."
    )


def estimate_from_log_file(log: Path) -> Estimate | None:
    """The estimate from a ``run.jsonl``; None if it does not have both curves."""
    curves = read(log)
    return None if curves.train_auc is None or curves.val_auc is None else estimate_from_curves(curves)


def estimate_from_curves(curves: Curves) -> Estimate:
    """`optimal_k` of both curves, with the steps and the counts that the log has."""
    try:
        return curves.estimate()
    except InputError as error:
        raise InputError(f"{curves.source}: {error}") from error


def _eval_records(curves: Curves) -> list[EvalRecord]:
    """The curves as records of a run log. If the log has no steps, evaluations are counted from 1."""
    records = []
    for split in ("train", "val"):
        aucs, steps = getattr(curves, f"{split}_auc"), getattr(curves, f"{split}_steps")
        if aucs is not None:
            places = range(1, len(aucs) + 1) if steps is None else steps.tolist()
            records += [
                EvalRecord(auc, step=step, split=split) for step, auc in zip(places, aucs.tolist(), strict=True)
            ]
    return records
