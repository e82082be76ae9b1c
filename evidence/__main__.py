"""``python -m evidence``: the tasks of docs/evidence.md by name, and its page."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from negwise.errors import InputError, NegwiseError

app = typer.Typer(
    name="python -m evidence",
    help="Remake the tasks of docs/evidence.md by name, and its page.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

# None leaves it to the plan.
Records = Annotated[Path, typer.Option(help="Folder for the runs and the record; the same command again resumes.")]
Ks = Annotated[str, typer.Option(help="Fixed K, with commas; 1 is always among them.", show_default="the plan's")]
Seeds = Annotated[int | None, typer.Option(help="Runs of each arm.", show_default="the plan's")]
Steps = Annotated[int | None, typer.Option(help="Updates of each run.", show_default="the plan's")]
Turning = Annotated[str, typer.Option(help="Turning points of ANS up to K*, with commas, as 0.01,0.1,0.5.")]
Paper = Annotated[bool, typer.Option("--paper", help="The paper's learning rate, batches and epochs; no tuning.")]
Name = Annotated[str | None, typer.Option(help="Name of the record, as items-long.", show_default="the task's")]
InPrecision = Annotated[str | None, typer.Option(help="32-true, bf16-mixed or 64-true.", show_default="the plan's")]
Vectors = Annotated[str | None, typer.Option(help="Word vectors at the start, as `negwise train --vectors`.")]
SkipBad = Annotated[int, typer.Option(help="Leave out up to this many bad rows of the data, and report each.")]
Jobs = Annotated[int | None, typer.Option(help="Runs side by side.", show_default="cores, or 1 on a GPU")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def main() -> None:
    """Exit 0 when done, 1 when the work failed, 2 when the request was wrong, 130 after Ctrl-C."""
    try:
        app()
    except InputError as error:
        _fail(error, 2)
    except (NegwiseError, OSError) as error:
        _fail(error, 1)


def _fail(error: Exception, code: int) -> None:
    print(f"evidence: {error}", file=sys.stderr)
    raise SystemExit(code) from error


@app.command("news")
def reproduce_news(
    out: Records,
    data: Annotated[str, typer.Option(help="A MIND folder: news.tsv and behaviors.tsv, or train/, dev/, test/.")],
    k: Ks = "",
    seeds: Seeds = None,
    steps: Steps = None,
    model: Annotated[str | None, typer.Option(help="nrms, naml or lstur.", show_default="nrms")] = None,
    turning: Turning = "",
    paper: Paper = False,
    precision: InPrecision = None,
    name: Name = None,
    vectors: Vectors = None,
    split: Annotated[str | None, typer.Option(help="folders, for whole MIND.", show_default="5 folds by user")] = None,
    jobs: Jobs = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """NRMS, NAML or LSTUR on MIND: pilot, K*, a sweep of K, schedules, and the record of all of it.

    The plan: K 1, 2, 4, 6, 10, 20, 50, 100; 5 seeds of 504 steps.

    \b
    Examples:
      python -m evidence news --data MINDsmall_train --vectors glove.6B.300d.txt --out runs/news --jobs 12
      python -m evidence news --model naml --k 100 --seeds 3 --data MINDsmall_train --out runs/news-naml
      python -m evidence news --paper --data MINDsmall_train --out runs/news-paper
    """
    fields = {} if split is None else {"split": split, "folds": None}
    asked = {"data": data, "k": k, "seeds": seeds, "steps": steps, "model": model, "vectors": vectors, "fields": fields}
    _reproduce("news", asked | _variant(turning, paper, precision, name), out, jobs, device, as_json)


@app.command("matching")
def reproduce_matching(
    out: Records,
    data: Annotated[str, typer.Option(help="Text pairs: JSONL with title and body, or the embedded docs.")] = "docs",
    k: Ks = "",
    seeds: Seeds = None,
    steps: Steps = None,
    model: Annotated[
        str | None,
        typer.Option(help="siamese-transformer, siamese-cnn or siamese-lstm.", show_default="siamese-transformer"),
    ] = None,
    turning: Turning = "",
    paper: Paper = False,
    precision: InPrecision = None,
    name: Name = None,
    vectors: Vectors = None,
    skip_bad: SkipBad = 0,
    jobs: Jobs = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """A siamese model on text pairs: pilot, K*, a sweep of K, schedules, and the record of all of it.

    The plan: K 1, 4, 10, 20, 50, 100, 200, 500; 5 seeds of 480 steps.

    \b
    Examples:
      python -m evidence matching --data reuters21578.jsonl.xz --skip-bad 2535 --out runs/matching --jobs 12
      python -m evidence matching --paper --precision bf16-mixed --data pairs.jsonl --out runs/matching-paper
      python -m evidence matching --model siamese-cnn --k 100 --seeds 3 --data pairs.jsonl --out runs/matching-cnn
    """
    asked: dict[str, Any] = {"data": data, "k": k, "seeds": seeds, "steps": steps, "model": model, "vectors": vectors}
    asked["fields"] = {"skip_bad": skip_bad}
    _reproduce("matching", asked | _variant(turning, paper, precision, name), out, jobs, device, as_json)


@app.command("items")
def reproduce_items(
    out: Records,
    data: Annotated[str, typer.Option(help="Interactions: MovieLens, or the file that BERT4Rec publishes.")],
    k: Ks = "",
    seeds: Seeds = None,
    steps: Steps = None,
    turning: Turning = "",
    paper: Paper = False,
    precision: InPrecision = None,
    name: Name = None,
    jobs: Jobs = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """BERT4Rec on interactions: pilot, K*, a sweep of K, schedules, and the record of all of it.

    The plan: K 1, 4, 10, 20, 50, 100, 300, 1000; 5 seeds of 1200 steps.

    \b
    Examples:
      python -m evidence items --data ml-1m_sas.txt.xz --out runs/items --jobs 12
      python -m evidence items --turning 0.01,0.05,0.1,0.2,0.3,0.5 --data ml-1m_sas.txt.xz --out runs/items
      python -m evidence items --steps 3600 --k 20,100,1000 --name items-long --data ml-1m_sas.txt.xz --out runs/long
    """
    asked = {"data": data, "k": k, "seeds": seeds, "steps": steps}
    _reproduce("items", asked | _variant(turning, paper, precision, name), out, jobs, device, as_json)


@app.command("clicks")
def reproduce_clicks(
    out: Records,
    k: Ks = "",
    seeds: Seeds = None,
    steps: Steps = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """A small NRMS in simulated worlds with known truth, on the CPU: predicted against measured best K.

    The plan: nine worlds; K 1, 2, 4, 8, 16, 32; 5 seeds of 720 steps.

    \b
    Example:
      python -m evidence clicks --out runs/clicks --jobs 8
    """
    with stopping():
        from evidence.clicks import reproduce_clicks as work

        files = work(out, k=whole("--k", k), seeds=seeds, steps=steps, jobs=jobs, tell=tell)
    show_files(files, as_json)


@app.command("seconds")
def reproduce_seconds(
    out: Annotated[Path, typer.Option(help="Folder of a task that is done: what --out was.")],
    steps: Annotated[int, typer.Option(help="Steps of each turn; the first 10 warm up and do not count.")] = 60,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Time a step at every K of a task, each alone on the machine, and add it to the task's record.

    \b
    Example:
      python -m evidence seconds --out runs/items
    """
    with stopping():
        from evidence.stopwatch import reproduce_seconds as work

        files = work(out, steps=steps, device=device, tell=tell)
    show_files(files, as_json)


@app.command("page")
def reproduce_page(
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("evidence/records"),
    docs: Annotated[Path, typer.Option(help="Folder of the pages: evidence.md and evidence-*.md.")] = Path("docs"),
    as_json: Json = False,
) -> None:
    """Write the tables, numbers and figures of the evidence from its records.

    \b
    Example:
      python -m evidence page
    """
    from evidence.page import refresh

    show_files(refresh(records, docs), as_json)


@app.command("gain")
def fit_gain(
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("evidence/records"),
    as_json: Json = False,
) -> None:
    """Fit the share of the gain in the top n that each K brings, leaving one data set out at a time.

    \b
    Example:
      python -m evidence gain
    """
    from evidence.gain import fit_records

    found = fit_records(records)
    print(json.dumps(found) if as_json else "\n".join(f"{name}: {value:.4f}" for name, value in found.items()))


def _variant(turning: str, paper: bool, precision: str | None, name: str | None) -> dict[str, Any]:
    return {"turning": numbers("--turning", turning), "paper": paper, "precision": precision, "name": name}


def _reproduce(task: str, asked: dict[str, Any], out: Path, jobs: int | None, device: str, as_json: bool) -> None:
    with stopping():
        from evidence.reproduce import Asked, reproduce

        fields = {**asked, "k": whole("--k", asked["k"])}
        files = reproduce(Asked(task=task, device=device, **fields), out, jobs=jobs, tell=tell)
    show_files(files, as_json)


@contextmanager
def stopping() -> Iterator[None]:
    """After Ctrl-C: what was saved, and the exit code that shells expect."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        message = str(stopped) or "stopped. Type the same command again to resume"
        print(f"evidence: {message}", file=sys.stderr)
        raise typer.Exit(130) from None


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def show_files(files: list[Path], as_json: bool) -> None:
    paths = [str(path) for path in files]
    print(json.dumps({"files": paths}) if as_json else "\n".join(paths))


def whole(flag: str, text: str) -> tuple[int, ...] | None:
    """Whole numbers with commas; None where there are none."""
    try:
        return tuple(int(part) for part in text.split(",")) if text.strip() else None
    except ValueError as error:
        raise InputError(f"{flag}: got {text!r}, expected whole numbers with commas, as 1,4,20.") from error


def numbers(flag: str, text: str) -> tuple[float, ...]:
    """Numbers with commas."""
    try:
        return tuple(float(part) for part in text.split(",")) if text.strip() else ()
    except ValueError as error:
        raise InputError(f"{flag}: got {text!r}, expected a number or numbers with commas, as 0.1,0.5.") from error


if __name__ == "__main__":
    main()
