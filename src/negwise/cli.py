"""The command line: verbs only. Each parses its words, calls one function and shows the result."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import negwise
from negwise.errors import InputError, NegwiseError

if TYPE_CHECKING:
    from negwise.curves import Curves
    from negwise.theory.estimate import Estimate

app = typer.Typer(
    name="negwise",
    help="How many negative samples do you need? Estimate the K of InfoNCE from the AUC curves of one short run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
reproduce = typer.Typer(help="Remake the paper's figures and tasks by name.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")


def main() -> None:
    """Run the command line: exit 0 when done, 1 when the work failed, 2 when the request was wrong."""
    try:
        app()
    except InputError as error:
        _fail(error, 2)
    except (NegwiseError, OSError) as error:
        _fail(error, 1)


def _fail(error: Exception, code: int) -> None:
    print(f"negwise: {error}", file=sys.stderr)
    raise SystemExit(code) from error


def _version(asked: bool) -> None:
    if asked:
        print(f"negwise {negwise.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def estimate(
    train_auc: Annotated[str, typer.Option(help="Training AUC under K=1: a number, or a curve as 0.6,0.7,...")] = "",
    val_auc: Annotated[str, typer.Option(help="Validation AUC: a final number, or a curve as 0.6,0.7,...")] = "",
    steps: Annotated[str, typer.Option(help="Steps of the curves, as 100,200,...")] = "",
    curves: Annotated[
        Path | None, typer.Option(help="A log, or a folder with one: CSV, TSV, JSONL, Lightning, Hugging Face.")
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Use the curve that ships with negwise.")] = False,
    queries: Annotated[int | None, typer.Option(help="Queries that each AUC rests on; gives the interval.")] = None,
    pairs: Annotated[
        int | None, typer.Option(help="(positive, negative) pairs that each AUC rests on, in all.")
    ] = None,
    lam: Annotated[float, typer.Option(help="Weight of good and bad samples, 0.5 to 1.")] = 0.9,
    max_k: Annotated[float | None, typer.Option(help="Where the search ends.", show_default="1e6")] = None,
    train_column: Annotated[str | None, typer.Option(help="Column of the training AUC in --curves.")] = None,
    val_column: Annotated[str | None, typer.Option(help="Column of the validation AUC in --curves.")] = None,
    step_column: Annotated[str | None, typer.Option(help="Column of the steps in --curves.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the figure here: .png, .svg, .csv or .json.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate the best K from the AUC of a short run with K=1.

    \b
    Examples:
      negwise estimate --train-auc 0.75
      negwise estimate --train-auc 0.96 --val-auc 0.7,0.83,0.88 --steps 1,2,4
      negwise estimate --curves lightning_logs/version_0 --plot estimate.png
      negwise estimate --curves run.jsonl --json
    """
    from negwise.theory.optimal import optimal_k

    options = {"lam": lam, "max_k": max_k, "n_queries": queries, "n_pairs": pairs}
    columns = {"train_auc": train_column, "val_auc": val_column, "step": step_column}
    train = _numbers("--train-auc", train_auc)
    if example or curves is not None:
        if (example and curves is not None) or val_auc or steps:
            raise InputError("--curves, --example and --val-auc with --steps are different sources: pass one of them.")
        log = _read_log(_example() if curves is None else curves, columns, train)
        found = optimal_k(**{**options, **_from_log(log, train, queries, pairs)})  # type: ignore[arg-type]
    else:
        if train is None:
            came = "no training AUC" if val_auc else "no AUC"
            raise InputError(
                f"got {came}. Type: negwise estimate --train-auc 0.75, or --curves FILE-OR-FOLDER, or --example."
            )
        if any(columns.values()):
            raise InputError(
                "--train-column, --val-column and --step-column name columns of a log: pass --curves FILE."
            )
        val = _numbers("--val-auc", val_auc)
        if steps and not isinstance(train, list) and not isinstance(val, list):
            raise InputError("--steps: got steps without a curve. Pass a curve, as --val-auc 0.6,0.7,0.72.")
        found = optimal_k(train, val, steps=_numbers("--steps", steps), **options)  # type: ignore[arg-type]
    if plot is not None:
        from negwise.report.estimate_figure import estimate_figure
        from negwise.report.figure import save_as

        print(f"figure: {save_as(estimate_figure(found), plot)}", file=sys.stderr)
    _show(found, as_json)


@app.command()
def data(
    path: Annotated[str, typer.Argument(help="A file, a folder, or an embedded default: docs, clicks.")],
    column: Annotated[
        list[str] | None, typer.Option(help="Which column plays a role, as user=customer; repeatable.")
    ] = None,
    skip_bad: Annotated[int, typer.Option(help="Leave out up to this many bad rows, and report each.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is in a data set: its size, the ceiling for K, example rows, problems.

    \b
    Examples:
      negwise data docs
      negwise data MINDsmall_train
      negwise data ratings.csv --skip-bad 10 --json
    """
    from negwise.data import inspect

    report = inspect(path, columns=_columns(column or []), skip_bad=skip_bad)
    print(json.dumps(report.to_dict()) if as_json else report.explain())


@app.command()
def train(
    data: Annotated[str, typer.Option(help="A file, a folder, or an embedded default: docs, clicks.")],
    model: Annotated[
        str,
        typer.Option(help="nrms, naml, lstur, siamese-transformer, siamese-cnn, siamese-lstm or bert4rec."),
    ],
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again goes on.")],
    k: Annotated[str, typer.Option(help="A number, ans:PEAK or warm:PEAK.")] = "4",
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.", show_default="the paper's")] = None,
    steps: Annotated[int | None, typer.Option(help="Updates, instead of epochs.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples a step.", show_default="the paper's")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of Adam.", show_default="the paper's")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, order, negatives and dropout.")] = 0,
    split: Annotated[str | None, typer.Option(help="time, last, user, random or folders.")] = None,
    pool: Annotated[int, typer.Option(help="Texts encoded a step, for every K.")] = 512,
    title_words: Annotated[int, typer.Option(help="Words of a title that the model sees.")] = 30,
    body_words: Annotated[int, typer.Option(help="Words of a body that the model sees.")] = 100,
    history: Annotated[int | None, typer.Option(help="Items of a user that the model sees.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option(help="An argument of the model, as hidden=128; repeatable.")
    ] = None,
    vectors: Annotated[str | None, typer.Option(help="Word vectors in GloVe's format.")] = None,
    queries: Annotated[int | None, typer.Option(help="At most this many queries an evaluation.")] = None,
    eval_every: Annotated[int | None, typer.Option(help="Steps between evaluations.", show_default="20 in all")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Which column plays a role, as user=customer; repeatable.")
    ] = None,
    skip_bad: Annotated[int, typer.Option(help="Leave out up to this many bad rows of the data.")] = 0,
    precision: Annotated[str, typer.Option(help="32-true, bf16-mixed or 64-true.")] = "32-true",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Log to TensorBoard too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train one model with one K, or a schedule of K; killed or stopped, the same command goes on.

    \b
    Examples:
      negwise train --data docs --model siamese-cnn --k warm:20 --steps 60 --eval-every 30 --body-words 20 --out runs/a
      negwise train --data clicks --model nrms --k 4 --steps 30 --eval-every 15 --queries 300 --out runs/b
      negwise train --data docs --model siamese-lstm --k ans:20 --steps 20 --eval-every 20 --body-words 20 --out runs/c
    """
    from negwise.experiments.training import Training
    from negwise.experiments.training import train as run

    asked = Training(
        data=data,
        columns=_columns(column or []),
        model=model,
        k=k,
        epochs=epochs,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        split=split,
        pool=pool,
        title_words=title_words,
        body_words=body_words,
        history=history,
        settings=_settings(setting or []),
        vectors=vectors,
        queries=queries,
        eval_every=eval_every,
        skip_bad=skip_bad,
        precision=precision,
        device=device,
    )
    with _stopping():
        result = run(asked, out, tensorboard=tensorboard)
    if not _speaks():
        return
    if as_json:
        print(json.dumps(result))
        return
    for name, scores in result["evaluations"].items():
        print(f"{name}: AUC {scores['auc']:.4f} +- {scores['auc_se']:.4f}")
    print(f"weights: {out / result['weights']}")


@app.command()
def run(
    data: Annotated[str, typer.Option(help="A file, a folder, or an embedded default: docs, clicks.")] = "docs",
    out: Annotated[Path, typer.Option(help="The job's folder; the same command again goes on.")] = Path("negwise-run"),
    model: Annotated[str | None, typer.Option(help="One of `train --model`.", show_default="by the data")] = None,
    schedule: Annotated[str, typer.Option(help="warm, ans or fixed, up to K*; or a rule such as warm:20.")] = "warm",
    budget: Annotated[str | None, typer.Option(help="Time for all of it: 90s, 10m, 2h.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Updates of each run.", show_default="by the budget, or 1000")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each arm; 5 give error bars worth the name.")] = 1,
    jobs: Annotated[int | None, typer.Option(help="Runs side by side.", show_default="cores, or 1 on a GPU")] = None,
    compare: Annotated[bool, typer.Option(help="Train K=1 and fixed K* beside the schedule.")] = True,
    lam: Annotated[float, typer.Option(help="Weight of good and bad samples, 0.5 to 1.")] = 0.9,
    batch_size: Annotated[int | None, typer.Option(help="Examples a step.", show_default="by the model")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="A third, once and three times of it are tried.", show_default="by the model")
    ] = None,
    split: Annotated[str | None, typer.Option(help="time, last, user, random or folders.")] = None,
    pool: Annotated[int | None, typer.Option(help="Texts encoded a step, for every K.", show_default="512")] = None,
    queries: Annotated[int | None, typer.Option(help="At most this many queries an evaluation.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Which column plays a role, as user=customer; repeatable.")
    ] = None,
    skip_bad: Annotated[int, typer.Option(help="Leave out up to this many bad rows of the data.")] = 0,
    precision: Annotated[str | None, typer.Option(help="32-true, bf16-mixed or 64-true.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The main job: pilot, estimate of K, training, comparison, and a page that shows why.

    \b
    Examples:
      negwise run --budget 5m
      negwise run --data pairs.jsonl --out jobs/pairs --budget 30m --seeds 3
      negwise run --data ratings.csv --schedule fixed --no-compare --steps 2000
    """
    with _stopping():
        from negwise.experiments.job import Job
        from negwise.experiments.job import run as work

    asked = Job(
        data=data,
        columns=_columns(column or []),
        model=model,
        schedule=schedule,
        budget=budget,
        steps=steps,
        seeds=seeds,
        compare=compare,
        lam=lam,
        batch_size=batch_size,
        learning_rate=learning_rate,
        split=split,
        pool=pool,
        queries=queries,
        skip_bad=skip_bad,
        precision=precision,
        device=device,
    )
    with _stopping():
        results = work(asked, out, jobs=jobs, tell=_tell)
    _show_results(results, out, as_json)


@app.command()
def sweep(
    out: Annotated[Path, typer.Option(help="The sweep's folder; the same command again goes on.")],
    data: Annotated[str, typer.Option(help="A file, a folder, or an embedded default: docs, clicks.")] = "docs",
    k: Annotated[str, typer.Option(help="Numbers and schedules, with commas.")] = "1,4,20,100",
    model: Annotated[str | None, typer.Option(help="One of `train --model`.", show_default="by the data")] = None,
    steps: Annotated[int | None, typer.Option(help="Updates of each run.", show_default="1000")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each K.")] = 3,
    jobs: Annotated[int | None, typer.Option(help="Runs side by side.", show_default="cores, or 1 on a GPU")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples a step.", show_default="by the model")] = None,
    learning_rate: Annotated[
        str, typer.Option(help="Of several, with commas, each K keeps its best.", show_default="by the model")
    ] = "",
    split: Annotated[str | None, typer.Option(help="time, last, user, random or folders.")] = None,
    pool: Annotated[int | None, typer.Option(help="Texts encoded a step, for every K.", show_default="512")] = None,
    queries: Annotated[int | None, typer.Option(help="At most this many queries an evaluation.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Which column plays a role, as user=customer; repeatable.")
    ] = None,
    skip_bad: Annotated[int, typer.Option(help="Leave out up to this many bad rows of the data.")] = 0,
    precision: Annotated[str | None, typer.Option(help="32-true, bf16-mixed or 64-true.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train a grid of K, schedules and seeds; cells that are done stay done, and a failed one is shown as failed.

    \b
    Examples:
      negwise sweep --out sweeps/docs --k 1,4,20,100 --steps 300 --seeds 3
      negwise sweep --out sweeps/mine --data ratings.csv --k 1,20,warm:20,ans:20 --learning-rate 3e-4,1e-3,3e-3
    """
    with _stopping():
        from negwise.experiments.job import Sweep
        from negwise.experiments.job import sweep as work

    rates = _numbers("--learning-rate", learning_rate)
    asked = Sweep(
        data=data,
        columns=_columns(column or []),
        k=tuple(part.strip() for part in k.split(",")),
        model=model,
        steps=steps,
        seeds=seeds,
        batch_size=batch_size,
        learning_rate=tuple(rates) if isinstance(rates, list) else rates,
        split=split,
        pool=pool,
        queries=queries,
        skip_bad=skip_bad,
        precision=precision,
        device=device,
    )
    with _stopping():
        results = work(asked, out, jobs=jobs, tell=_tell)
    _show_results(results, out, as_json)


@app.command()
def report(
    paths: Annotated[list[Path], typer.Argument(help="Folders of jobs or runs, or logs of other frameworks.")],
    out: Annotated[Path | None, typer.Option(help="The page, or a folder for it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make a page and figures from records alone; several folders are compared.

    \b
    Examples:
      negwise report negwise-run
      negwise report runs/a runs/b --out compare.html
      negwise report lightning_logs/version_0
    """
    from negwise.report.build import build

    page = build(paths, out)
    print(json.dumps({"page": str(page)}) if as_json else f"report: {page}")


@app.command()
def explore(
    out: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("explore.html"),
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The framework as an interactive page: move AUC and lambda, paste a curve, see K* move.

    \b
    Examples:
      negwise explore
      negwise explore --out explore.html --no-open
    """
    from negwise.report.explore import write_explore

    page = write_explore(out)
    print(json.dumps({"page": str(page)}) if as_json else f"page: {page}")
    if show and not as_json:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


@reproduce.command("theory")
def reproduce_theory(
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("theory"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make the paper's model-free figures: PNG, SVG and a CSV of the numbers of each.

    \b
    Example:
      negwise reproduce theory --out figures
    """
    from negwise.experiments import theory

    def tell(name: str, done: int, total: int) -> None:
        print(f"[{done + 1}/{total}] {name}", file=sys.stderr)

    _show_files(theory.reproduce_theory(out, tell), as_json)


_Out = Annotated[Path, typer.Option(help="Folder for the runs and the record; the same command again goes on.")]
_Ks = Annotated[str, typer.Option(help="Fixed K, with commas; 1 is always among them.", show_default="the plan's")]
_Seeds = Annotated[int | None, typer.Option(help="Runs of each arm.", show_default="the plan's")]
_Steps = Annotated[int | None, typer.Option(help="Updates of each run.", show_default="the plan's")]
_Jobs = Annotated[int | None, typer.Option(help="Runs side by side.", show_default="cores, or 1 on a GPU")]
_Vectors = Annotated[Path | None, typer.Option(help="Word vectors at the start, as `train --vectors`.")]
_Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@reproduce.command("news")
def reproduce_news(
    out: _Out,
    data: Annotated[str, typer.Option(help="A MIND folder: news.tsv and behaviors.tsv, or train/, dev/, test/.")],
    k: _Ks = "",
    seeds: _Seeds = None,
    steps: _Steps = None,
    vectors: _Vectors = None,
    split: Annotated[str | None, typer.Option(help="folders, for whole MIND.", show_default="5 folds by user")] = None,
    jobs: _Jobs = None,
    device: _Device = "auto",
    as_json: _Json = False,
) -> None:
    """NRMS on MIND: pilot, K*, a sweep of K, schedules, and the record of all of it.

    \b
    Example:
      negwise reproduce news --data MINDsmall_train --vectors glove.6B.300d.txt --out runs/news --jobs 12
    """
    fields = {} if split is None else {"split": split, "folds": None}
    _reproduce("news", data, out, k, seeds, steps, vectors, jobs, device, as_json, fields)


@reproduce.command("matching")
def reproduce_matching(
    out: _Out,
    data: Annotated[str, typer.Option(help="Text pairs: JSONL with title and body, or the embedded docs.")] = "docs",
    k: _Ks = "",
    seeds: _Seeds = None,
    steps: _Steps = None,
    vectors: _Vectors = None,
    jobs: _Jobs = None,
    device: _Device = "auto",
    as_json: _Json = False,
) -> None:
    """The siamese Transformer on text pairs: pilot, K*, a sweep of K, schedules, and the record of all of it.

    \b
    Example:
      negwise reproduce matching --data reuters21578.jsonl.xz --out runs/matching --jobs 12
    """
    _reproduce("matching", data, out, k, seeds, steps, vectors, jobs, device, as_json, {})


@reproduce.command("items")
def reproduce_items(
    out: _Out,
    data: Annotated[str, typer.Option(help="Interactions: MovieLens, or the file that BERT4Rec publishes.")],
    k: _Ks = "",
    seeds: _Seeds = None,
    steps: _Steps = None,
    jobs: _Jobs = None,
    device: _Device = "auto",
    as_json: _Json = False,
) -> None:
    """BERT4Rec on interactions: pilot, K*, a sweep of K, schedules, and the record of all of it.

    \b
    Example:
      negwise reproduce items --data ml-1m_sas.txt.xz --out runs/items --jobs 12
    """
    _reproduce("items", data, out, k, seeds, steps, None, jobs, device, as_json, {})


@reproduce.command("clicks")
def reproduce_clicks(
    out: _Out,
    k: _Ks = "",
    seeds: _Seeds = None,
    steps: _Steps = None,
    jobs: _Jobs = None,
    as_json: _Json = False,
) -> None:
    """A small NRMS in simulated worlds with known truth, on the CPU: predicted against measured best K.

    \b
    Example:
      negwise reproduce clicks --out runs/clicks --jobs 8
    """
    with _stopping():
        from negwise.experiments.evidence.clicks import reproduce_clicks as work

        files = work(out, k=_whole("--k", k), seeds=seeds, steps=steps, jobs=jobs, tell=_tell)
    _show_files(files, as_json)


@reproduce.command("page")
def reproduce_page(
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("evidence"),
    page: Annotated[Path, typer.Option(help="The page whose tables are written.")] = Path("docs/evidence.md"),
    as_json: _Json = False,
) -> None:
    """Write the tables and figures of the evidence from its records.

    \b
    Example:
      negwise reproduce page
    """
    from negwise.experiments.evidence.page import refresh

    _show_files(refresh(records, page, page.with_suffix("")), as_json)


def _reproduce(
    task: str, data: str, out: Path, k: str, seeds: int | None, steps: int | None, vectors: Path | None,
    jobs: int | None, device: str, as_json: bool, fields: dict[str, Any],
) -> None:  # fmt: skip
    with _stopping():
        from negwise.experiments.evidence.reproduce import Asked
        from negwise.experiments.evidence.reproduce import reproduce as work

        asked = Asked(
            task=task,
            data=data,
            k=_whole("--k", k),
            seeds=seeds,
            steps=steps,
            vectors=None if vectors is None else str(vectors),
            fields=fields,
            device=device,
        )
        files = work(asked, out, jobs=jobs, tell=_tell)
    _show_files(files, as_json)


def _whole(flag: str, text: str) -> tuple[int, ...] | None:
    """Whole numbers from the command line; None where there are none."""
    if not text.strip():
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{flag}: got {text!r}, expected whole numbers with commas, as 1,4,20.") from error


def _show_files(files: list[Path], as_json: bool) -> None:
    paths = [str(path) for path in files]
    print(json.dumps({"files": paths}) if as_json else "\n".join(paths))


def _numbers(flag: str, text: str) -> float | list[float] | None:
    """One number, or a list of them, from the command line."""
    if not text.strip():
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{flag}: got {text!r}, expected a number or numbers with commas, as 0.61,0.68,0.7."
        ) from error
    return values[0] if len(values) == 1 else values


def _settings(pairs: list[str]) -> dict[str, int | float]:
    """Arguments of a model from the command line."""
    found: dict[str, int | float] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            number = float(value)
        except ValueError as error:
            raise InputError(f"--setting: got {pair!r}, expected a name and a number, as hidden=128.") from error
        found[name.strip()] = int(number) if number.is_integer() else number
    return found


def _columns(pairs: list[str]) -> dict[str, str]:
    """Roles of columns from the command line."""
    found = {}
    for pair in pairs:
        role, equals, name = pair.partition("=")
        if not equals:
            raise InputError(f"--column: got {pair!r}, expected a role and a column, as user=customer.")
        found[role.strip()] = name
    return found


@contextmanager
def _stopping() -> Iterator[None]:
    """Ctrl-C: a word on how to go on, and the exit code that shells expect.

    `negwise.train.Stopped`, a KeyboardInterrupt, says what was saved; another one came where nothing was to be saved.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        if _speaks():
            said = str(stopped) or "stopped. Type the same command again; what is in its folder stays done"
            print(f"negwise: {said}", file=sys.stderr)
        raise typer.Exit(130) from None


def _speaks() -> bool:
    """Of several processes under ``torchrun`` the first one."""
    return os.environ.get("RANK", "0") == "0"


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show_results(results: Mapping[str, Any], out: Path, as_json: bool) -> None:
    """The results of a job; exit 1 where every run of it failed."""
    if as_json:
        print(json.dumps({**results, "out": str(out)}))
    else:
        from negwise.terminal import show_results

        show_results(results, out)
    if results["chosen"] is None:
        raise NegwiseError(f"{out}: no run came to an end; each says why in its failed.json.")


def _example() -> Path:
    from importlib.resources import files

    return Path(str(files("negwise.curves") / "example.csv"))


def _read_log(path: Path, columns: Mapping[str, str | None], train_auc: object) -> Curves:
    """The curves of a log, with its training AUC or with the one on the command line, never with both."""
    from negwise.curves import read

    log = read(path, columns=columns)
    if train_auc is not None and log.train_auc is not None:
        raise InputError(
            f"{log.source}: its column {log.columns['train_auc']!r} is the training AUC, and --train-auc gives "
            "another. Pass one of them."
        )
    if train_auc is None and log.train_auc is None:
        perhaps = "".join(f" ({name!r} may be it: --train-column {name!r})" for name in log.unassigned)
        raise InputError(
            f"{log.source}: found no training AUC beside {log.columns.get('val_auc')!r}{perhaps}. "
            "Name its column with --train-column, or give it with --train-auc."
        )
    return log


def _from_log(log: Curves, train_auc: object, queries: int | None, pairs: int | None) -> dict[str, object]:
    """The arguments of optimal_k from a log; counts on the command line go before those in the file."""
    given: dict[str, object] = {"val_auc": log.val_auc, "steps": log.val_steps, "train_auc": train_auc}
    if train_auc is None:
        given |= {"train_auc": log.train_auc, "train_steps": log.train_steps}
    if queries is None and pairs is None:
        given |= {"n_queries": log.val_queries, "n_pairs": log.val_pairs, "val_se": log.val_se}
        given |= {"train_queries": log.train_queries, "train_pairs": log.train_pairs, "train_se": log.train_se}
    return given


def _show(found: Estimate, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found.to_dict()))
    elif sys.stdout.isatty():
        from negwise.terminal import show_estimate

        show_estimate(found)
    else:
        print(found.explain())
