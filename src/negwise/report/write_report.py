"""`write_report` makes a page and its figures from records alone. Nothing is trained here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import negwise
from negwise.errors import InputError
from negwise.files import write_atomically
from negwise.records import CONFIG, JOB, LOG, RESULTS
from negwise.report.answer import make_answer
from negwise.report.comparison import compare
from negwise.report.estimate_figure import auc_curves, effectiveness_curve
from negwise.report.figure import Figure
from negwise.report.from_job import is_job, job_report_data
from negwise.report.from_log import log_report_data
from negwise.report.from_run import is_run, run_report_data
from negwise.report.page import render_template, vega_bundle
from negwise.report.quality_figures import quality_against_k, recommended_items
from negwise.report.report_data import ReportData
from negwise.report.tables import (
    DECISION_COLUMNS,
    DECISION_NOTE,
    NamedValues,
    data_rows,
    decision_rows,
    results_table,
    settings_rows,
)
from negwise.report.training_figures import (
    k_over_time,
    loss_and_bound,
    quality_over_time,
    sample_shares,
    throughput,
)
from negwise.stages import stage

PAGE = "report.html"


def write_report(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    columns: Mapping[str, str | None] | None = None,
    run: str | None = None,
) -> Path:
    """Write the page of a job, a run or a log, or one that compares several, and its figures. Return the page's path.

    ``out`` is the page (``x.html``) or a folder for it. By default the page of a job or a run goes into its folder, any
    other page is ``report.html`` in the current one. The figures go next to the page, as PNG, SVG and CSV. ``columns``
    names the columns of a log of another framework, and ``run`` chooses among its runs, as in `negwise.curves.read`.
    """
    if not paths:
        raise InputError("report: got no folder, expected the folder of a job or a run. Type: negwise report DIR")
    reports = [read_report_data(Path(path), columns, run) for path in paths]
    report = reports[0] if len(reports) == 1 else compare(reports)
    figures = make_figures(report)
    page = _page_path(report, out)
    try:
        _save(figures, page)
        with stage("writing the page"):
            return write_atomically(page, render_page(report, figures))
    except OSError as error:
        raise InputError(
            f"{page}: cannot be written ({error.strerror or error}). Choose another place with --out PAGE"
        ) from error


def draw_figures(folder: Path) -> None:
    """Save the figures of the job in ``folder``. `write_report` in the same process then has little left to do."""
    report = read_report_data(folder)
    page = _page_path(report, None)
    try:
        _save(make_figures(report), page)
        vega_bundle()
    except OSError as error:
        raise InputError(f"{page.parent}: the figures cannot be written ({error.strerror or error})") from error


def _save(figures: Sequence[Figure], page: Path) -> None:
    folder = page.parent / ("figures" if page.name == PAGE else f"{page.stem}-figures")
    with stage("drawing the figures") as progress:
        for number, figure in enumerate(figures):
            progress(number / len(figures))
            figure.save_all(folder)


def read_report_data(path: Path, columns: Mapping[str, str | None] | None = None, run: str | None = None) -> ReportData:
    """The data of ``path``: a job, a run, or a log of another framework."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder. Pass the folder of a job or a run, or a log")
    if path.is_dir():
        if run is not None and (is_job(path) or is_run(path)):
            raise InputError(f"{path}: got --run {run}, but this is the folder of one job or run. Leave it out")
        if columns and any(columns.values()) and (is_job(path) or is_run(path)):
            raise InputError(f"{path}: got names of columns, but the folder of a job or a run has none. Leave them out")
        if is_job(path):
            return job_report_data(path)
        if is_run(path):
            return run_report_data(path)
        if (path / CONFIG).is_file():
            raise InputError(f"{path}: a run that has not started: it has a {CONFIG} and no {LOG}. Train first")
        if (path / RESULTS).is_file():
            raise InputError(f"{path}: has a {RESULTS} and no {JOB}. Restore {JOB}, or report on its runs")
    try:
        return log_report_data(path, columns, run)
    except InputError as error:
        raise InputError(f"{error} Nor is it a job ({JOB}) or a run ({CONFIG}, {LOG}) of negwise.") from error


def make_figures(report: ReportData) -> list[Figure]:
    """The figures that the records allow, in the order of the page."""
    estimate, arms = report.estimate, report.arms
    found = [
        None if estimate is None else auc_curves(estimate),
        None if estimate is None else effectiveness_curve(estimate),
        quality_against_k(report),
        quality_over_time(report),
        k_over_time(arms),
        None if estimate is None else sample_shares(arms, estimate.label_separation),
        loss_and_bound(arms),
        throughput(arms),
        recommended_items(arms),
    ]
    return [figure for figure in found if figure is not None]


def render_page(report: ReportData, figures: Sequence[Figure]) -> str:
    """The page as one HTML text."""
    return render_template(
        "report.html",
        report=report,
        answer=make_answer(report),
        results=results_table(report),
        decisions=decision_rows(report),
        decision_columns=DECISION_COLUMNS,
        decision_note=DECISION_NOTE,
        figures=figures,
        figures_data=[figure.for_page() for figure in figures],
        data=None if report.data is None else data_rows(report.data),
        settings=_settings_tables(report),
        version=negwise.__version__,
    )


def _settings_tables(report: ReportData) -> list[tuple[str, NamedValues]]:
    tables = [(title, settings_rows(settings)) for title, settings in report.settings.items()]
    return [(title, rows) for title, rows in tables if rows]


def _page_path(report: ReportData, out: str | os.PathLike[str] | None) -> Path:
    if out is not None:
        page = Path(out)
        return page if page.suffix.lower() in (".html", ".htm") else page / PAGE
    return report.path / PAGE if report.kind in ("run", "sweep", "train") else Path(PAGE)
