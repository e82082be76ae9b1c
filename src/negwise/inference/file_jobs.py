"""The verbs `encode`, `recommend` and `export`: a model, a file in, a file out, a batch of rows at a time."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from negwise.datasets.id_columns import id_text, is_valid_text
from negwise.datasets.table_columns import candidates
from negwise.errors import InputError, quote, require
from negwise.inference.best_candidates import NOBODY, TopN
from negwise.inference.open_model import TrainedModel, load
from negwise.inference.recommender import Recommender
from negwise.inference.table_files import (
    array_writer,
    check_apart,
    check_ending,
    column_names,
    ending_of,
    read_rows,
    row_writer,
)
from negwise.inference.text_model import TextModel
from negwise.requests import EncodeRequest, ExportRequest, RecommendRequest
from negwise.stages import Progress, stage

ARRAY = ".npy"
ARTICLE = ("abstract", "body", "category", "subcategory")
"""Columns of an article beside its title."""

Row = dict[str, Any]


def encode_file(request: EncodeRequest) -> dict[str, Any]:
    """Write the vectors of the texts, or of the articles, of a file; returns how many, their width, what was read, and
    the seconds that it took.

    ``.npy`` has the vectors alone; other endings have the column ``vector`` beside ``text``, of articles beside ``id``
    where the file has one, else ``title``.
    """
    began = time.perf_counter()
    check_apart(request.out, request.texts)
    check_ending(request.out, ARRAY)
    model = _load(request.model)
    source = _articles_of(request, model) if isinstance(model, Recommender) else _texts_of(request)
    options: dict[str, Any] = {"batch_size": request.batch_size, "device": request.device}
    if isinstance(model, TextModel):
        options["side"] = request.side
    names: deque[str] = deque()  # of rows that were read and whose vectors are still to come
    rows = 0

    def values(progress: Progress) -> Iterator[Any]:
        for number, row in _rows(request.texts, source.columns, request.batch_size, progress):
            value = source.value(row, number)
            names.append(_name(row[source.name], number, request.texts, source.name))
            yield value

    def parts() -> Iterator[tuple[list[str], Any]]:
        nonlocal rows
        with stage(f"encoding {request.texts}") as progress:
            for vectors in model.encode_batches(values(progress), **options):
                rows += len(vectors)
                yield [names.popleft() for _ in range(len(vectors))], vectors

    if ending_of(request.out)[0] == ARRAY:
        with array_writer(request.out, model.width) as append:
            for _, vectors in parts():
                append(vectors)
    else:
        pa = require("pyarrow", extra="train")
        schema = pa.schema([(source.called, pa.large_string()), ("vector", pa.list_(pa.float32(), model.width))])
        with row_writer(request.out, schema) as write:
            for called, vectors in parts():
                flat = pa.array(vectors.reshape(-1), pa.float32())
                write({source.called: called, "vector": pa.FixedSizeListArray.from_arrays(flat, model.width)})
    return {
        "texts": rows,
        "width": model.width,
        "columns": source.columns,
        "out": request.out,
        "seconds": time.perf_counter() - began,
    }


def recommend_file(request: RecommendRequest) -> dict[str, Any]:
    """Recommend for what was asked for; returns what was found, or with ``out`` how much was written.

    Rows have ``user`` (the id, or the number of the row where there are only histories), ``rank`` from 1, ``item`` and
    ``score``.
    """
    check_apart(request.out, request.input, request.candidates, request.items)
    model = _load(request.model)
    if not isinstance(model, Recommender):
        raise InputError(f"{request.model}: a model of texts, expected a recommender. Type: negwise encode.")
    if request.items is not None:
        model = _with_articles(model, request)
    options: dict[str, Any] = {
        "n": request.n,
        "exclude_seen": request.exclude_seen,
        "unknown": request.unknown,
        "empty": request.empty,
        "batch_size": request.batch_size,
        "device": request.device,
        "candidates": None if request.candidates is None else _candidates(request.candidates),
    }
    if request.input is None:
        histories = None if request.history is None else [request.history]
        found = model.recommend(request.users or None, histories, **options)
        if request.out is None:
            return found.to_dict()
        return _write_found(request.out, iter([(list(map(str, found.queries)), found)]))
    with stage(f"recommending for {request.input}") as progress:
        return _write_found(request.out or "", _from_file(model, request.input, options, progress))


def export_job(request: ExportRequest) -> dict[str, Any]:
    """Export a model; returns the folder and its files."""
    model = _load(request.model)
    with stage(f"exporting {request.model}"):
        folder = model.export(request.out, vectors=request.vectors, onnx=request.onnx, histories=request.histories)
    return {"out": str(folder), "files": {one.name: one.stat().st_size for one in sorted(folder.iterdir())}}


def _load(path: str) -> TrainedModel:
    with stage(f"loading {path}"):
        return load(path)


class _Source(NamedTuple):
    """The ``columns`` to read, which of them is the ``name`` of a row, and what that is ``called`` in the result;
    ``value`` makes what is encoded of a row and its number, from 1."""

    columns: list[str]
    name: str
    called: str
    value: Callable[[Row, int], Any]


def _texts_of(request: EncodeRequest) -> _Source:
    column = _column(request, "text")
    return _Source([column], column, "text", lambda row, number: _text(row.get(column), number, request.texts, column))


def _articles_of(request: EncodeRequest, model: Recommender) -> _Source:
    if model.reader is None:
        raise InputError(
            f"{request.model}: {model.record.model} knows items by their ids and reads no text, expected a model of "
            "texts or of news. For the vectors of its items type: negwise export --vectors."
        )
    if request.side != "right":
        raise InputError(f"--side: got {request.side}, expected none: a model of news encodes articles, without sides.")
    names = column_names(request.texts)
    title = _column(request, "title")
    columns = _of_article(names, model)
    name = "id" if "id" in names else title
    read = list(dict.fromkeys([name, title, *columns]))
    return _Source(read, name, "id" if name == "id" else "title", _article(request.texts, title, columns))


def _column(request: EncodeRequest, usual: str) -> str:
    """The column that was asked for, or the ``usual`` one, or the only one."""
    names = column_names(request.texts)
    if request.column is not None:
        if request.column not in names:
            raise InputError(f"{request.texts}: no column {request.column!r}. Columns: {', '.join(names)}.")
        return request.column
    if usual in names:
        return usual
    if len(names) != 1:
        raise InputError(
            f"{request.texts}: got the columns {', '.join(names)}, expected {usual}. Choose one: --column NAME."
        )
    return names[0]


def _of_article(names: list[str], model: Recommender) -> list[str]:
    """Those of the columns ``names`` that ``model`` reads beside a title."""
    assert model.reader is not None
    wanted = model.reader.wanted
    read = {name for name in ARTICLE if name in wanted} | ({"body"} if "abstract" in wanted else set())
    if {"abstract", "body"} <= set(names):
        read -= {"body"}
    return [name for name in ARTICLE if name in read and name in names]


def _article(path: str, title: str, columns: list[str]) -> Callable[[Row, int], Row]:
    """A function that makes an article of a row."""

    def made(row: Row, number: int) -> Row:
        return {"title": _text(row.get(title), number, path, title), **{name: row.get(name) for name in columns}}

    return made


def _with_articles(model: Recommender, request: RecommendRequest) -> Recommender:
    """``model`` with the articles of the file ``items`` among its items."""
    path = request.items or ""
    names = column_names(path)
    if missing := [name for name in ("id", "title") if name not in names]:
        raise InputError(
            f"{path}: no column {' and no column '.join(missing)}; got {', '.join(names)}, expected id and "
            "title and, where there are some, abstract, category and subcategory."
        )
    if model.reader is None:
        raise InputError(
            f"--items: {model.record.model} knows items by their ids and reads no text, expected a model of news. "
            "Train again with the new items in the data."
        )
    columns = _of_article(names, model)
    article = _article(path, "title", columns)

    with stage(f"encoding {path}") as progress:
        rows = _rows(path, ["id", "title", *columns], request.batch_size, progress)
        articles = ({"id": row.get("id"), **article(row, number)} for number, row in rows)
        return model.with_items(articles, batch_size=request.batch_size, device=request.device)


def _rows(path: str, columns: list[str], size: int, progress: Progress) -> Iterator[tuple[int, Row]]:
    """Rows with their numbers, from 1."""
    return enumerate((row for part in read_rows(path, columns, size, progress) for row in part), 1)


def _text(value: Any, number: int, path: str, column: str) -> str:
    if not isinstance(value, str) or not is_valid_text(value):
        half = " (half of a surrogate pair is none)" if isinstance(value, str) else ""
        raise InputError(f"{path}, row {number}: {column} is {quote(value)}, expected a text{half}.")
    return value


def _name(value: Any, number: int, path: str, column: str) -> str:
    """What a row is called in the result: its text as it is, or its id as training has it."""
    if isinstance(value, str) and value and is_valid_text(value):
        return value
    name, wrong = id_text(value, column)
    if name is None:
        raise InputError(f"{path}, row {number}: {wrong}.")
    return name


def _from_file(
    model: Recommender, path: str, options: dict[str, Any], progress: Progress
) -> Iterator[tuple[list[str], TopN]]:
    """What was found for each batch of rows, and what to call those that were served: users, or numbers of rows."""
    names = column_names(path)
    user, history = _role(path, names, "user"), "history" if "history" in names else None
    if user is None and history is None:
        raise InputError(f"{path}: got the columns {', '.join(names)}, expected user, history, or both.")
    first, wanted = 0, [name for name in (user, history) if name is not None]
    for rows in read_rows(path, wanted, progress=progress):
        where = [f"{path}, row {first + at + 1}" for at in range(len(rows))]
        users = None if user is None else [_there(row.get(user), user, at) for row, at in zip(rows, where, strict=True)]
        histories = None
        if history is not None:
            histories = [_history(row.get(history), at) for row, at in zip(rows, where, strict=True)]
            if users is None and (options["empty"] or options["unknown"]) == "error":
                _check_none_is_empty(histories, where)
        found = model.recommend(users, histories, **options)
        yield [str(one) if users is not None else str(first + one) for one in found.queries], found
        first += len(rows)


def _history(value: Any, where: str) -> list[Any]:
    """A list, a JSON list, or ids with spaces between them, as MIND has them; nothing is an empty history."""
    if value is None:
        return []
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InputError(f"{where}: history {quote(value)} is no JSON list ({error}).") from error
    if isinstance(value, str):
        return value.split()
    if not isinstance(value, list):
        raise InputError(f"{where}: history is {quote(value)}, expected a list of item ids, or ids with spaces.")
    return [_there(one, "item", where) for one in value]


def _check_none_is_empty(histories: list[list[Any]], where: list[str]) -> None:
    empty = [at for history, at in zip(histories, where, strict=True) if not history]
    if empty:
        raise InputError(
            f"{empty[0]}: a history without a single item, expected one or more. Leave such rows out with --empty "
            "skip, or serve them as evaluation does with --empty serve."
        )


def _there(value: Any, what: str, where: str) -> Any:
    if value is None:
        raise InputError(f"{where}: no {what}, expected an id.")
    return value


def _role(path: str, names: list[str], role: str) -> str | None:
    """The column that is the ``role``, by the names that `negwise data` takes for it."""
    found = [role] if role in names else candidates(role, "interactions", names)
    if len(found) > 1:
        raise InputError(f"{path}: {role} could be any of {', '.join(found)}. Call one of them {role}.")
    return found[0] if found else None


def _candidates(path: str) -> list[Any]:
    names = column_names(path)
    item = _role(path, names, "item")
    if item is None:
        raise InputError(f"{path}: got the columns {', '.join(names)}, expected item.")
    return [_there(row.get(item), item, path) for rows in read_rows(path, [item]) for row in rows]


def _write_found(out: str, parts: Iterator[tuple[list[str], TopN]]) -> dict[str, Any]:
    pa = require("pyarrow", extra="train")
    schema = pa.schema(
        [("user", pa.large_string()), ("rank", pa.int32()), ("item", pa.large_string()), ("score", pa.float32())]
    )
    queries, left_out, rows = 0, 0, 0
    with row_writer(out, schema) as write:
        for names, found in parts:
            at, place = (found.ids != NOBODY).nonzero()
            write(
                {
                    "user": [names[row] for row in at],
                    "rank": (place + 1).astype("int32"),
                    "item": found.name(found.ids[at, place]),
                    "score": found.scores[at, place],
                }
            )
            queries, left_out, rows = queries + len(found), left_out + len(found.left_out), rows + len(at)
    return {"queries": queries, "rows": rows, "left_out": left_out, "out": out}
