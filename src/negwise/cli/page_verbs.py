"""`estimate`, `report`, `explore` and `reproduce`: K from logs, and pages and figures to look at."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from negwise.errors import InputError
from negwise.requests import EstimateRequest, ExploreRequest, ReportRequest, ReproduceRequest

if TYPE_CHECKING:
    from negwise.curves import Curves
    from negwise.theory.estimate import Estimate


def estimate_verb(request: EstimateRequest, as_json: bool) -> None:
    """Estimate the best K from the AUC curves of a short run with K = 1.

    \b
    Examples:
      negwise estimate --train-auc 0.75
      negwise estimate --train-auc 0.96 --val-auc 0.7,0.83,0.88 --steps 1,2,4
      negwise estimate lightning_logs --plot estimate.png
      negwise estimate mlflow.db --run pilot --json
      zcat log.csv.gz | negwise estimate -
    """
    found = _estimate(request)
    if request.plot is not None:
        from negwise.report.estimate_figure import estimate_figure

        print(f"figure: {estimate_figure(found).save_as(Path(request.plot))}", file=sys.stderr)
    if as_json:
        print(json.dumps(found.to_dict()))
    elif sys.stdout.isatty():
        from negwise import terminal

        terminal.show_estimate(found)
    else:
        print(found.explain())


def report_verb(request: ReportRequest, as_json: bool) -> None:
    """Make the page and the figures of a job, a run or a log. Several folders are compared.

    \b
    Examples:
      negwise report negwise-run
      negwise report runs/a runs/b --out compare.html
      negwise report lightning_logs/version_0
    """
    from negwise.report.write_report import write_report

    page = write_report(request.paths, request.out, _columns(request), request.run)
    print(json.dumps({"page": str(page)}) if as_json else f"report: {page}")


def explore_verb(request: ExploreRequest, as_json: bool) -> None:
    """Open the theory as an interactive page: move AUC and lambda, paste a curve, see K* move.

    \b
    Examples:
      negwise explore
      negwise explore --out explore.html --no-open
    """
    from negwise.report.explore import write_explore

    page = write_explore(Path(request.out))
    print(json.dumps({"page": str(page)}) if as_json else f"page: {page}")
    if request.open and not as_json:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def theory_verb(request: ReproduceRequest, as_json: bool) -> None:
    """Draw the paper's figures that need no model, each as PNG, SVG and a CSV of its numbers.

    \b
    Example:
      negwise reproduce theory --out figures
    """
    from negwise.report import paper_figures

    def made(name: str, done: int, total: int) -> None:
        print(f"[{done + 1}/{total}] {name}", file=sys.stderr, flush=True)

    files = [str(path) for path in paper_figures.reproduce_theory(Path(request.out), made)]
    print(json.dumps({"files": files}) if as_json else "\n".join(files))


def _estimate(request: EstimateRequest) -> Estimate:
    from negwise.theory.optimal_k import optimal_k

    options: dict[str, Any] = {"lam": request.lam, "max_k": request.max_k}
    counts: dict[str, Any] = {"n_queries": request.queries, "n_pairs": request.pairs}
    train, val, steps = (_curve(values) for values in (request.train_auc, request.val_auc, request.steps))
    given = [source for source in (request.log, request.curves) if source is not None]
    if request.example or given:
        if len(given) + request.example > 1 or val is not None or steps is not None:
            raise InputError(
                "a log, --curves, --example and --val-auc with --steps are different sources: pass one of them."
            )
        log = _read_log(given[0] if given else str(_example()), request, train)
        found = optimal_k(**{**options, **counts, **_from_log(log, train, request)})
        return replace(found, reasons=(*log.caveats(), *found.reasons))
    if train is None:
        came = "no training AUC" if val is not None else "no AUC"
        raise InputError(
            f"got {came}. Type: negwise estimate --train-auc 0.75, or negwise estimate FILE-OR-FOLDER, or --example."
        )
    if any(_columns(request).values()) or request.run is not None:
        raise InputError("--train-column, --val-column, --step-column and --run are about a log: pass one, as log.csv.")
    if steps is not None and not isinstance(train, list) and not isinstance(val, list):
        raise InputError("--steps: got steps without a curve. Pass a curve, as --val-auc 0.6,0.7,0.72.")
    return optimal_k(train, val, steps=steps, **options, **counts)


def _curve(values: float | tuple[float, ...] | None) -> float | list[float] | None:
    return list(values) if isinstance(values, tuple) else values


def _columns(request: EstimateRequest | ReportRequest) -> dict[str, str | None]:
    return {"train_auc": request.train_column, "val_auc": request.val_column, "step": request.step_column}


def _example() -> Path:
    from importlib.resources import files

    return Path(str(files("negwise.curves") / "example.csv"))


def _read_log(path: str, request: EstimateRequest, train_auc: object) -> Curves:
    """The curves of a log, with its training AUC or with the one on the command line, never with both."""
    from negwise.curves import read

    log = read(path, columns=_columns(request), run=request.run)
    if train_auc is not None and log.train_auc is not None:
        raise InputError(
            f"{log.source}: its column {log.columns['train_auc']!r} is the training AUC, and --train-auc gives "
            "another. Pass one of them."
        )
    if train_auc is None and log.train_auc is None:
        perhaps = "".join(f" ({name!r} may be it: --train-column {name!r})" for name in log.unassigned)
        raise InputError(
            f"{log.source}: found no training AUC beside {log.columns.get('val_auc')!r}{perhaps}. "
            "Name its column with --train-column, or give it with --train-auc. Of negwise's own runs, those with --k 1 "
            "have one."
        )
    return log


def _from_log(log: Curves, train_auc: object, request: EstimateRequest) -> dict[str, Any]:
    """The arguments of optimal_k from a log; counts on the command line go before those in the file."""
    given: dict[str, Any] = log.arguments()
    if train_auc is not None:
        given |= {"train_auc": train_auc, "train_steps": None}
    if request.queries is not None or request.pairs is not None:
        given = {name: value for name, value in given.items() if name not in log.precision()}
    return given
