"""From records to a page: `build`. Nothing is trained here, and nothing but records is read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import negwise
from negwise.errors import InputError
from negwise.files import write_atomically
from negwise.records import CONFIG, JOB, LOG, RESULTS
from negwise.report.answer import answer
from negwise.report.comparison import beside
from negwise.report.estimate_figure import auc_curves, effectiveness_curve
from negwise.report.facts import data_facts, plain_facts
from negwise.report.figure import Figure
from negwise.report.from_job import is_job, job_subject
from negwise.report.from_log import log_subject
from negwise.report.from_run import is_run, run_subject
from negwise.report.k_figure import quality_against_k
from negwise.report.loss_figures import loss_and_bound, throughput
from negwise.report.page import render
from negwise.report.recommended_figure import recommended
from negwise.report.sampling_figures import k_over_time, sample_shares
from negwise.report.subject import Subject
from negwise.report.table import results
from negwise.report.time_figure import quality_over_time

PAGE = "report.html"


def build(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> Path:
    """Write the page of a job, a run or a log, or one that compares several, and its figures; returns the page's path.

    ``out`` is the page (``x.html``) or a folder for it. Without it, the page of a job or a run goes into its folder,
    any other is ``report.html`` here. The figures go beside the page, as PNG, SVG and CSV. ``columns`` says which
    column of a log of another framework plays which role, as `negwise.curves.read` takes it.
    """
    if not paths:
        raise InputError("report: got no folder, expected the folder of a job or a run: negwise report DIR")
    subjects = [read_subject(Path(path), columns) for path in paths]
    subject = subjects[0] if len(subjects) == 1 else beside(subjects)
    page = _place(subject, out)
    shown = exhibits(subject)
    figures = page.parent / ("figures" if page.name == PAGE else f"{page.stem}-figures")
    try:
        for exhibit in shown:
            exhibit.save_all(figures)
        return write_atomically(page, page_of(subject, shown))
    except OSError as error:
        raise InputError(
            f"{page}: cannot be written ({error.strerror or error}). Pass another place: --out PAGE"
        ) from error


def read_subject(path: Path, columns: Mapping[str, str | None] | None = None) -> Subject:
    """What ``path`` is: a job, a run, or a log of another framework."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder. Pass the folder of a job or a run, or a log")
    if path.is_dir():
        if columns and any(columns.values()) and (is_job(path) or is_run(path)):
            raise InputError(f"{path}: columns were named, but this is negwise's own, which has none. Leave them out")
        if is_job(path):
            return job_subject(path)
        if is_run(path):
            return run_subject(path)
        if (path / CONFIG).is_file():
            raise InputError(f"{path}: a run that has not begun: it has a {CONFIG} and no {LOG}. Train first")
        if (path / RESULTS).is_file():
            raise InputError(f"{path}: has a {RESULTS} and no {JOB}. Restore {JOB}, or report on its runs")
    try:
        return log_subject(path, columns)
    except InputError as error:
        raise InputError(f"{error} Nor is it a job ({JOB}) or a run ({CONFIG}, {LOG}) of negwise.") from error


def exhibits(subject: Subject) -> list[Figure]:
    """The figures that the records allow, in the order of the page."""
    estimate, arms = subject.estimate, subject.arms
    found = [
        None if estimate is None else auc_curves(estimate),
        None if estimate is None else effectiveness_curve(estimate),
        quality_against_k(subject),
        k_over_time(arms),
        None if estimate is None else sample_shares(arms, estimate.label_separation),
        loss_and_bound(arms),
        throughput(arms),
        quality_over_time(subject),
        recommended(arms),
    ]
    return [exhibit for exhibit in found if exhibit is not None]


def page_of(subject: Subject, shown: Sequence[Figure]) -> str:
    """The page as one HTML text."""
    return render(
        "report.html",
        subject=subject,
        answer=answer(subject),
        table=results(subject),
        exhibits=shown,
        figures=[exhibit.for_page() for exhibit in shown],
        data=None if subject.data is None else data_facts(subject.data),
        settings=_settings(subject),
        version=negwise.__version__,
    )


def _settings(subject: Subject) -> list[tuple[str, Any]]:
    tables = [(title, plain_facts(values)) for title, values in subject.facts.items()]
    return [(title, facts) for title, facts in tables if facts]


def _place(subject: Subject, out: str | os.PathLike[str] | None) -> Path:
    if out is not None:
        page = Path(out)
        return page if page.suffix.lower() in (".html", ".htm") else page / PAGE
    return subject.path / PAGE if subject.kind in ("run", "sweep", "train") else Path(PAGE)
