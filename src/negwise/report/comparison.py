"""Several jobs, runs or logs on one page: their arms together, under names that are distinct."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from negwise.report.report_data import ArmRuns, ReportData

DIFFERENT_DATA = "These runs saw different data (their content hashes differ), so their scores cannot be compared."


def compare(reports: Sequence[ReportData]) -> ReportData:
    """One `ReportData` with the arms of all ``reports``, in their order."""
    labels = distinct_names([report.path for report in reports])
    pairs = list(zip(labels, reports, strict=True))
    with_metrics = [report for report in reports if report.kind != "log"]
    shared = [name for name in reports[0].metrics if all(name in report.metrics for report in with_metrics)]
    return ReportData(
        path=Path(os.path.commonpath([report.path.resolve() for report in reports])),
        kind="comparison",
        arms=tuple(_label_arm(label, report, arm) for label, report in pairs for arm in report.arms),
        metrics=tuple(shared) or ("auc",),
        estimates=tuple((label, one) for label, report in pairs for _, one in report.estimates),
        caveats=(
            *_comparability_caveats(reports),
            *(f"{label}: {caveat}" for label, report in pairs for caveat in report.caveats),
        ),
        missing=tuple(f"{label}: {gap}" for label, report in pairs for gap in report.missing),
        settings={label: _own_settings(report) for label, report in pairs},
    )


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of each path, as many as make the names distinct."""
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-depth:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({number})" for number, path in enumerate(paths, start=1)]  # the same folder twice


def _label_arm(label: str, report: ReportData, arm: ArmRuns) -> ArmRuns:
    return replace(arm, name=label if len(report.arms) == 1 else f"{label}: {arm.name}", group=label)


def _own_settings(report: ReportData) -> dict[str, object]:
    """The settings of one report in one flat table."""
    return {
        name: value for title in ("Run", "Request", "Log") for name, value in report.settings.get(title, {}).items()
    }


def _comparability_caveats(reports: Sequence[ReportData]) -> list[str]:
    """Reasons why the scores of these reports may not be comparable."""
    caveats = []
    digests = {report.digest for report in reports if report.digest is not None}
    if len(digests) > 1:
        caveats.append(DIFFERENT_DATA)
    steps = {run.steps for report in reports for arm in report.arms for run in arm.done if run.steps}
    if len(steps) > 1:
        shown = ", ".join(f"{step:g}" for step in sorted(steps))
        caveats.append(
            f"They were trained for different numbers of steps ({shown}): part of the gain of a larger K is speed."
        )
    return caveats
