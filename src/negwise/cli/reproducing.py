"""`reproduce`: the paper's figures and tasks by name, and the page of the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from negwise.cli.options import (
    Device,
    InPrecision,
    Jobs,
    Json,
    Ks,
    Name,
    Paper,
    Records,
    Seeds,
    SkipBad,
    Steps,
    Turning,
    Vectors,
)
from negwise.cli.showing import show_files, stopping, tell
from negwise.cli.words import numbers, whole

app = typer.Typer(help="Remake the paper's figures and tasks by name.", no_args_is_help=True)


@app.command("theory")
def reproduce_theory(
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("theory"),
    as_json: Json = False,
) -> None:
    """Make the paper's model-free figures: PNG, SVG and a CSV of the numbers of each.

    \b
    Example:
      negwise reproduce theory --out figures
    """
    from negwise.jobs import theory

    def made(name: str, done: int, total: int) -> None:
        tell(f"[{done + 1}/{total}] {name}")

    show_files(theory.reproduce_theory(out, made), as_json)


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
      negwise reproduce news --data MINDsmall_train --vectors glove.6B.300d.txt --out runs/news --jobs 12
      negwise reproduce news --model naml --k 100 --seeds 3 --data MINDsmall_train --out runs/news-naml
      negwise reproduce news --paper --data MINDsmall_train --out runs/news-paper
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
      negwise reproduce matching --data reuters21578.jsonl.xz --skip-bad 2535 --out runs/matching --jobs 12
      negwise reproduce matching --paper --precision bf16-mixed --data pairs.jsonl --out runs/matching-paper
      negwise reproduce matching --model siamese-cnn --k 100 --seeds 3 --data pairs.jsonl --out runs/matching-cnn
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
      negwise reproduce items --data ml-1m_sas.txt.xz --out runs/items --jobs 12
      negwise reproduce items --turning 0.01,0.05,0.1,0.2,0.3,0.5 --data ml-1m_sas.txt.xz --out runs/items
      negwise reproduce items --steps 3600 --k 20,100,1000 --name items-long --data ml-1m_sas.txt.xz --out runs/long
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
      negwise reproduce clicks --out runs/clicks --jobs 8
    """
    with stopping():
        from negwise.jobs.evidence.clicks import reproduce_clicks as work

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
      negwise reproduce seconds --out runs/items
    """
    with stopping():
        from negwise.jobs.evidence.stopwatch import reproduce_seconds as work

        files = work(out, steps=steps, device=device, tell=tell)
    show_files(files, as_json)


@app.command("page")
def reproduce_page(
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("evidence"),
    page: Annotated[Path, typer.Option(help="The page whose tables are written.")] = Path("docs/evidence.md"),
    as_json: Json = False,
) -> None:
    """Write the tables and figures of the evidence from its records.

    \b
    Example:
      negwise reproduce page
    """
    from negwise.jobs.evidence.page import refresh

    show_files(refresh(records, page), as_json)


def _variant(turning: str, paper: bool, precision: str | None, name: str | None) -> dict[str, Any]:
    points = numbers("--turning", turning)
    listed = points if isinstance(points, list) else [] if points is None else [points]
    return {"turning": tuple(listed), "paper": paper, "precision": precision, "name": name}


def _reproduce(task: str, asked: dict[str, Any], out: Path, jobs: int | None, device: str, as_json: bool) -> None:
    with stopping():
        from negwise.jobs.evidence.reproduce import Asked, reproduce

        fields = {**asked, "k": whole("--k", asked["k"])}
        files = reproduce(Asked(task=task, device=device, **fields), out, jobs=jobs, tell=tell)
    show_files(files, as_json)
