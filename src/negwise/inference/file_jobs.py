"""The verbs `encode`, `recommend` and `export`: a model, a file in, a file out, a batch of rows at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from negwise.errors import InputError, quote, require
from negwise.inference.best_candidates import NOBODY, TopN
from negwise.inference.open_model import TrainedModel, load
from negwise.inference.progress import Progress, shown
from negwise.inference.recommender import Recommender
from negwise.inference.table_files import array_writer, column_names, read_rows, row_writer
from negwise.inference.text_model import TextModel
from negwise.requests import EncodeRequest, ExportRequest, RecommendRequest

ARRAY = ".npy"


def encode_file(request: EncodeRequest, progress: Progress = False) -> dict[str, Any]:
    """Write the vectors of the texts of a file; returns how many, their width and the seconds that it took.

    ``.npy`` has the vectors alone; other endings have the columns ``text`` and ``vector``.
    """
    began = time.perf_counter()
    model = load(request.model)
    if not isinstance(model, TextModel):
        raise InputError(f"{request.model}: a recommender, expected a model of texts. Type: negwise recommend.")
    column = _text_column(request)
    options: dict[str, Any] = {"side": request.side, "batch_size": request.batch_size, "device": request.device}
    rows = 0

    def parts() -> Iterator[tuple[list[str], Any]]:
        nonlocal rows
        with shown(progress, "texts", None) as tell:
            for part in read_rows(request.texts, [column], request.batch_size):
                texts = [_text(row.get(column), rows + place, request, column) for place, row in enumerate(part)]
                yield texts, model.encode(texts, **options)
                rows += len(texts)
                tell(len(texts))

    if Path(request.out).suffix.lower() == ARRAY:
        with array_writer(request.out, model.width) as append:
            for _, vectors in parts():
                append(vectors)
    else:
        pa = require("pyarrow", extra="train")
        schema = pa.schema([("text", pa.large_string()), ("vector", pa.list_(pa.float32(), model.width))])
        with row_writer(request.out, schema) as write:
            for texts, vectors in parts():
                flat = pa.array(vectors.reshape(-1), pa.float32())
                write({"text": texts, "vector": pa.FixedSizeListArray.from_arrays(flat, model.width)})
    return {"texts": rows, "width": model.width, "out": request.out, "seconds": time.perf_counter() - began}


def recommend_file(request: RecommendRequest, progress: Progress = False) -> dict[str, Any]:
    """Recommend for what was asked for; returns what was found, or with ``out`` how much was written.

    Rows have ``user`` (the id, or the number of the row where there are only histories), ``rank`` from 1, ``item`` and
    ``score``.
    """
    model = load(request.model)
    if not isinstance(model, Recommender):
        raise InputError(f"{request.model}: a model of texts, expected a recommender. Type: negwise encode.")
    options: dict[str, Any] = {
        "n": request.n,
        "exclude_seen": request.exclude_seen,
        "unknown": request.unknown,
        "batch_size": request.batch_size,
        "device": request.device,
        "candidates": None if request.candidates is None else _candidates(request.candidates),
    }
    if request.input is None:
        histories = None if request.history is None else [request.history]
        found = model.recommend(request.users or None, histories, **options)
        if request.out is None:
            return found.to_dict()
        return _write_found(request.out, iter([(0, found)]), False)
    return _write_found(request.out or "", _from_file(model, request.input, options), progress)


def export_job(request: ExportRequest) -> dict[str, Any]:
    """Export a model; returns the folder and its files."""
    model: TrainedModel = load(request.model)
    folder = model.export(request.out, vectors=request.vectors, onnx=request.onnx, histories=request.histories)
    return {"out": str(folder), "files": {one.name: one.stat().st_size for one in sorted(folder.iterdir())}}


def _text_column(request: EncodeRequest) -> str:
    names = column_names(request.texts)
    if request.column is not None:
        if request.column not in names:
            raise InputError(f"{request.texts}: no column {request.column!r}. Columns: {', '.join(names)}.")
        return request.column
    if "text" in names:
        return "text"
    if len(names) != 1:
        raise InputError(
            f"{request.texts}: got the columns {', '.join(names) or 'none'}, expected text. Choose one: --column NAME."
        )
    return names[0]


def _text(value: Any, row: int, request: EncodeRequest, column: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{request.texts}, row {row + 1}: {column} is {quote(value)}, expected a text.")
    return value


def _from_file(model: Recommender, path: str, options: dict[str, Any]) -> Iterator[tuple[int, TopN]]:
    names = column_names(path)
    wanted = [name for name in ("user", "history") if name in names]
    if not wanted:
        raise InputError(f"{path}: got the columns {', '.join(names) or 'none'}, expected user, history, or both.")
    first = 0
    for rows in read_rows(path, wanted):
        users = [row.get("user") for row in rows] if "user" in wanted else None
        histories = None
        if "history" in wanted:
            histories = [_history(row.get("history"), f"{path}, row {first + at + 1}") for at, row in enumerate(rows)]
        yield first, model.recommend(users, histories, **options)
        first += len(rows)


def _history(value: Any, where: str) -> list[Any]:
    """A list, a JSON list, or ids with spaces between them, as MIND has them."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InputError(f"{where}: history {quote(value)} is no JSON list ({error}).") from error
    if isinstance(value, str):
        return value.split()
    if not isinstance(value, list):
        raise InputError(f"{where}: history is {quote(value)}, expected a list of item ids, or ids with spaces.")
    return value


def _candidates(path: str) -> list[Any]:
    if "item" not in (names := column_names(path)):
        raise InputError(f"{path}: got the columns {', '.join(names) or 'none'}, expected item.")
    return [row["item"] for rows in read_rows(path, ["item"]) for row in rows]


def _write_found(out: str, parts: Iterator[tuple[int, TopN]], progress: Progress) -> dict[str, Any]:
    pa = require("pyarrow", extra="train")
    schema = pa.schema(
        [("user", pa.large_string()), ("rank", pa.int32()), ("item", pa.large_string()), ("score", pa.float32())]
    )
    queries, left_out, rows = 0, 0, 0
    with row_writer(out, schema) as write, shown(progress, "queries", None) as tell:
        for first, found in parts:
            at, place = (found.ids != NOBODY).nonzero()
            # A history without a user is named by its row in the whole file.
            names = [str(first + name) if type(name) is int else str(name) for name in found.queries]
            write(
                {
                    "user": [names[row] for row in at],
                    "rank": (place + 1).astype("int32"),
                    "item": found.name(found.ids[at, place]),
                    "score": found.scores[at, place],
                }
            )
            queries, left_out, rows = queries + len(found), left_out + len(found.left_out), rows + len(at)
            tell(len(found) + len(found.left_out))
    return {"queries": queries, "rows": rows, "left_out": left_out, "out": out}
