"""What the second study trains on that is no file: catalogues of other sizes, docstrings of other packages, hard
negatives that are given, wrong labels, and all bodies as candidates.

Simulated users: a user's next item is the best of a few that the user meets, by the affinity of hidden tastes, so that
what comes next can be learnt whatever the size of the catalogue.
"""

from __future__ import annotations

import ast
import csv
import json
import re
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

import negwise as nw
from evidence.second_cells import DATA
from negwise import InputError
from negwise.datasets import read
from negwise.requests import TrainRequest
from negwise.tasks import Task, evaluation_splits, make_task

PACKAGES = (
    "transformers", "sentence_transformers", "jax", "numpyro", "botorch", "gpytorch", "pyarrow", "numba", "triton",
)  # fmt: skip
"""Whose docstrings are the other ones; none of them is in the embedded docs."""
MIN_WORDS = 3
GIVEN = 10
"""Hard negatives of each training pair."""
MINED = "mined.safetensors"
MINER = {"k": "metric", "seed": 100, "steps": 800}
"""The first model, which the hard negatives are mined with."""
WIDTH = 8
"""Of the hidden tastes."""
FEWEST = 5000
"""Users of a small catalogue."""
MET = 50
"""Items that a user meets before taking one."""


def click_histories(mind: Path, out: Path) -> Path:
    """``behaviors.tsv`` as user, item and time: the longest history of every user, in its order."""
    longest: dict[str, list[str]] = {}
    with mind.joinpath("behaviors.tsv").open(encoding="utf-8") as file:
        for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            clicked = row[3].split()
            if len(clicked) > len(longest.get(row[1], [])):
                longest[row[1]] = clicked
    return _write(out, ((user, item, at) for user, items in longest.items() for at, item in enumerate(items)))


def simulated(items: int, out: Path, *, users: int | None = None, length: int = 30, seed: int = 0) -> Path:
    """``users`` with ``length`` items each, of a catalogue of ``items``: by default as many as items, so that each item
    is taken some thirty times, and at least `FEWEST`."""
    users = max(FEWEST, items) if users is None else users
    dice = np.random.default_rng([seed, items])
    tastes, kinds = dice.normal(size=(users, WIDTH)), dice.normal(size=(items, WIDTH))
    rows = []
    for user in range(users):
        met = dice.integers(0, items, (length, MET))
        taken = met[np.arange(length), (kinds[met] @ tastes[user]).argmax(1)]
        rows += [(f"u{user}", f"i{item}", at) for at, item in enumerate(taken.tolist())]
    return _write(out, rows)


def package_docstrings(out: Path, packages: tuple[str, ...]) -> Path:
    """Title and body of each docstring of ``packages``; none whose title or body the embedded docs have."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise InputError(
            f"packages: {', '.join(missing)} cannot be found, and the data is the docstrings of {', '.join(packages)}, "
            f"all of them. Type: pip install {' '.join(missing).replace('_', '-')}"
        )
    docs = read("docs").tables["pairs"]
    known = {text for side in ("left", "right") for text in docs[side].to_pylist()}
    pairs = dict.fromkeys(pair for package in packages for pair in docstring_pairs(package))
    kept = [pair for pair in pairs if known.isdisjoint(pair)]
    return _write_lines(out, ({"title": title, "body": body} for title, body in kept))


def docstring_pairs(package: str) -> Iterator[tuple[str, str]]:
    """(title, body) of each docstring: the first paragraph, and the rest without the object's own name."""
    spec = find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or ()
    for path in (path for folder in folders for path in sorted(Path(folder).rglob("*.py"))):
        try:
            with warnings.catch_warnings(action="ignore"):  # of escapes in the texts
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # a template, or test data of a parser
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                title, _, body = (ast.get_docstring(node) or "").partition("\n\n")
                if name := getattr(node, "name", ""):
                    body = re.sub(rf"\b{re.escape(name)}\b", " ", body)
                title, body = _plain(title), _plain(body)
                if min(len(title.split()), len(body.split())) >= MIN_WORDS:
                    yield title, body


def _plain(text: str) -> str:
    """Words with one space between: snake_case and CamelCase apart, no underlines of headings."""
    text = re.sub(r"^\s*[-=~^*]{3,}\s*$", "", text, flags=re.MULTILINE)
    return " ".join(re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+", " ", text).split())


def hard_negatives(request: TrainRequest, n: int = GIVEN) -> NDArray[np.int32]:
    """(P, n) rows of pairs whose bodies are hard negatives of each training pair, -1 for none, mined by a first model.

    Only pairs of training are mined, among themselves; the others have none.
    """
    pairs = _pairs(request)
    data = make_task(request).data
    assert data.texts is not None
    titles, bodies = data.texts.fields["title"], data.texts.fields["body"]
    training = [(titles[item], bodies[item]) for item in range(*data.train.candidates)]
    with tempfile.TemporaryDirectory() as folder:
        nw.train(**_asked(request), out=folder)
        columns = nw.load(folder).mine(training, n).to_pydict()
    row_of = {pair: row for row, pair in reversed(list(enumerate(pairs)))}
    row_of_body = {body: row for row, (_, body) in reversed(list(enumerate(pairs)))}
    rows = np.full((len(pairs), n), -1, np.int32)
    for at, pair in enumerate(training):
        mined = (columns[f"negative_{place + 1}"][at] for place in range(n))
        rows[row_of[pair]] = [-1 if text is None else row_of_body[text] for text in mined]
    return rows


def with_given(request: TrainRequest, rows: NDArray[np.int32], out: Path) -> Path:
    """The pairs of ``request`` in their order, each with its negatives, which leaves the split as it was."""
    pairs = _pairs(request)
    lines = (
        {"title": title, "body": body, "negatives": [pairs[row][1] for row in mined[mined >= 0]]}
        for (title, body), mined in zip(pairs, rows, strict=True)
    )
    return _write_lines(out, lines)


def _pairs(request: TrainRequest) -> list[tuple[str, str]]:
    table = read(request.data, skip_bad=request.skip_bad).tables["pairs"]
    return list(zip(table["left"].to_pylist(), table["right"].to_pylist(), strict=True))


def _asked(request: TrainRequest) -> dict[str, Any]:
    """Those fields of a request that say something."""
    usual = TrainRequest(data=request.data)
    return {name: value for name, value in vars(request).items() if value != getattr(usual, name) or name == "data"}


def path_of(task: str, data: Path) -> Path | None:
    """Where the data of a task lies; None if it is no file."""
    name = DATA[task]["data"]
    return None if name in ("docs", "clicks") else data / name


def make_data(task: str, data: Path, out: Path, done: tuple[Path, ...] = ()) -> None:
    """Make the data of ``task``, unless it is there.

    Hard negatives are kept in ``out``, and taken from the folders ``done`` where one has them: a second model would
    mine others.
    """
    path = path_of(task, data)
    if path is None or path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"part-{path.name}")
    if task == "histories":
        click_histories(data / "mind", part)
    elif task == "packages":
        package_docstrings(part, PACKAGES)
    elif task == "mined":
        fields = {**DATA["matching"], "data": str(data / DATA["matching"]["data"])}
        request = TrainRequest(**{**fields, **MINER})
        there = next((folder / MINED for folder in done if (folder / MINED).exists()), None)
        rows = load_file(there)["rows"] if there else hard_negatives(request)
        save_file({"rows": rows}, out / MINED)
        with_given(request, rows, part)
    else:
        simulated(int(task.rpartition("-")[2]), part)
    part.replace(path)


def with_noise(task: Task, share: float, seed: int) -> Task:
    """``task`` with ``share`` of its training positives replaced by random ones, in training and where it is evaluated
    on training; validation and test stay as they are.

    Of sequences every training item is a positive. What was known of a row is still never drawn as its negative.
    """
    numbers = np.random.default_rng([seed, 5])
    train, splits = task.data.train, dict(task.splits)
    if task.data.windows is not None:
        windows = task.data.windows
        items = replaced(windows.items, share, (0, task.data.n_items), numbers)
        examples: Any = type(task.examples)(replace(windows, items=items))
        noisy = replace(train, items=items, positives=items[train.end])
    else:
        examples = noisy = replace(train, positives=replaced(train.positives, share, train.candidates, numbers))
    if "train" in splits:
        splits["train"] = replace(splits["train"], examples=noisy)  # type: ignore[type-var]
    return replace(task, examples=examples, splits=splits)


def replaced(ids: NDArray[Any], share: float, among: tuple[int, int], numbers: np.random.Generator) -> NDArray[Any]:
    """A copy of ``ids`` (N,) in which each is one of ``among`` at random with probability ``share``."""
    chosen = numbers.random(len(ids)) < share
    return np.where(chosen, numbers.integers(*among, len(ids)), ids).astype(ids.dtype)


def among_all(task: Task) -> Task:
    """``task`` whose validation and test queries are ranked among the items of all splits.

    Training draws from its own split, as ever: a body of validation or test is never a negative there.
    """
    everything = (0, task.data.n_items)
    held = {name: replace(getattr(task.data, name), candidates=everything) for name in ("val", "test")}
    data = replace(task.data, **held)
    wide = evaluation_splits(data)
    return replace(task, data=data, splits={name: wide[name] for name in task.splits})


def _write_lines(out: Path, rows: Iterator[dict[str, Any]]) -> Path:
    with out.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return out


def _write(out: Path, rows: object) -> Path:
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "time"])
        writer.writerows(rows)  # type: ignore[arg-type]
    return out
