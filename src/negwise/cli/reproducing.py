"""`reproduce`: the paper's figures and tasks by name, and the page of the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from negwise.cli.options import Device, Jobs, Json, Ks, Records, Seeds, Steps, Vectors
from negwise.cli.showing import show_files, stopping, tell
from negwise.cli.words import whole

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
    from negwise.experiments import theory

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
    vectors: Vectors = None,
    split: Annotated[str | None, typer.Option(help="folders, for whole MIND.", show_default="5 folds by user")] = None,
    jobs: Jobs = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """NRMS on MIND: pilot, K*, a sweep of K, schedules, and the record of all of it.

    \b
    Example:
      negwise reproduce news --data MINDsmall_train --vectors glove.6B.300d.txt --out runs/news --jobs 12
    """
    fields = {} if split is None else {"split": split, "folds": None}
    asked = {"data": data, "k": k, "seeds": seeds, "steps": steps, "vectors": vectors, "fields": fields}
    _reproduce("news", asked, out, jobs, device, as_json)


@app.command("matching")
def reproduce_matching(
    out: Records,
    data: Annotated[str, typer.Option(help="Text pairs: JSONL with title and body, or the embedded docs.")] = "docs",
    k: Ks = "",
    seeds: Seeds = None,
    steps: Steps = None,
    vectors: Vectors = None,
    jobs: Jobs = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """The siamese Transformer on text pairs: pilot, K*, a sweep of K, schedules, and the record of all of it.

    \b
    Example:
      negwise reproduce matching --data reuters21578.jsonl.xz --out runs/matching --jobs 12
    """
    asked = {"data": data, "k": k, "seeds": seeds, "steps": steps, "vectors": vectors}
    _reproduce("matching", asked, out, jobs, device, as_json)


@app.command("items")
def reproduce_items(
    out: Records,
    data: Annotated[str, typer.Option(help="Interactions: MovieLens, or the file that BERT4Rec publishes.")],
    k: Ks = "",
    seeds: Seeds = None,
    steps: Steps = None,
    jobs: Jobs = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """BERT4Rec on interactions: pilot, K*, a sweep of K, schedules, and the record of all of it.

    \b
    Example:
      negwise reproduce items --data ml-1m_sas.txt.xz --out runs/items --jobs 12
    """
    _reproduce("items", {"data": data, "k": k, "seeds": seeds, "steps": steps}, out, jobs, device, as_json)


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

    \b
    Example:
      negwise reproduce clicks --out runs/clicks --jobs 8
    """
    with stopping():
        from negwise.experiments.evidence.clicks import reproduce_clicks as work

        files = work(out, k=whole("--k", k), seeds=seeds, steps=steps, jobs=jobs, tell=tell)
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
    from negwise.experiments.evidence.page import refresh

    show_files(refresh(records, page, page.with_suffix("")), as_json)


def _reproduce(task: str, asked: dict[str, Any], out: Path, jobs: int | None, device: str, as_json: bool) -> None:
    with stopping():
        from negwise.experiments.evidence.reproduce import Asked, reproduce

        fields = {**asked, "k": whole("--k", asked["k"])}
        files = reproduce(Asked(task=task, device=device, **fields), out, jobs=jobs, tell=tell)
    show_files(files, as_json)
