"""Several subjects as one: their arms side by side, under names that tell them apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from negwise.report.subject import Arm, Subject

OTHER_DATA = "These runs saw different data (their content hashes differ), so their scores cannot be compared."


def beside(subjects: Sequence[Subject]) -> Subject:
    """A comparison of ``subjects``, in their order."""
    labels = short_names([subject.path for subject in subjects])
    pairs = list(zip(labels, subjects, strict=True))
    shared = [name for name in subjects[0].metrics if all(name in s.metrics or s.kind == "log" for s in subjects)]
    return Subject(
        path=Path(os.path.commonpath([subject.path.resolve() for subject in subjects])),
        kind="comparison",
        arms=tuple(_named(label, subject, arm) for label, subject in pairs for arm in subject.arms),
        metrics=tuple(shared) or ("auc",),
        estimates=tuple((label, one) for label, subject in pairs for _, one in subject.estimates),
        caveats=(
            *_not_alike(subjects),
            *(f"{label}: {caveat}" for label, subject in pairs for caveat in subject.caveats),
        ),
        missing=tuple(f"{label}: {gap}" for label, subject in pairs for gap in subject.missing),
        facts={label: _settings(subject) for label, subject in pairs},
    )


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of each path, as many as it takes to tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-depth:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({number})" for number, path in enumerate(paths, start=1)]  # one folder, given twice


def _named(label: str, subject: Subject, arm: Arm) -> Arm:
    return replace(arm, name=label if len(subject.arms) == 1 else f"{label}: {arm.name}", group=label)


def _settings(subject: Subject) -> dict[str, object]:
    """What tells one subject from another: its own settings, flat."""
    return {
        name: value for title in ("Run", "Asked for", "Log") for name, value in subject.facts.get(title, {}).items()
    }


def _not_alike(subjects: Sequence[Subject]) -> list[str]:
    """Why scores of these subjects may not be comparable."""
    found = []
    digests = {subject.digest for subject in subjects if subject.digest is not None}
    if len(digests) > 1:
        found.append(OTHER_DATA)
    steps = {trial.steps for subject in subjects for arm in subject.arms for trial in arm.done if trial.steps}
    if len(steps) > 1:
        shown = ", ".join(f"{step:g}" for step in sorted(steps))
        found.append(f"They were trained for different numbers of steps ({shown}): part of what K gains is speed.")
    return found
