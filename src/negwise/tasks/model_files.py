"""What a run keeps so that its model can be used without its data: names, tokens, histories, and ``model.json``."""

from __future__ import annotations

import inspect
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import negwise
from negwise.datasets import Ragged, Source, TaskData
from negwise.errors import require
from negwise.models import MODELS
from negwise.records import ITEMS, TOKENIZER, USERS, ModelRecord, with_manifest
from negwise.requests import TrainRequest, identity_of

if TYPE_CHECKING:
    from negwise.tasks.task import TokenizedTexts

NEWS_TOKENS = ("title", "abstract")
CATEGORIES = ("category", "subcategory")
_NOT_PROVENANCE = ("model", "settings", "k", "metric", "columns", "world", "skip_bad", "eval_every", "queries")


def model_files(
    request: TrainRequest, data: TaskData, texts: TokenizedTexts | None, model: Any, source: Source | None
) -> dict[str, bytes]:
    """Files by name, ``model.json`` last. ``request`` has its recipe; ``source`` is None for simulated data."""
    assert request.model is not None and request.metric is not None and request.history is not None
    assert request.title_words is not None and request.body_words is not None
    files: dict[str, bytes] = {}
    sizes = {"n_items": data.n_items, "n_users": data.n_users}
    categories: dict[str, tuple[str, ...]] = {}
    example = None
    if texts is not None:
        files[TOKENIZER] = texts.tokenizer.to_json()
        sizes["n_words"] = len(texts.tokenizer)
    if data.name != "pairs":
        columns = {"id": _names(source, "items" if source is None or source.kind != "mind" else "news", data.n_items)}
        wanted = inspect.signature(MODELS[request.model]).parameters
        if texts is not None and data.texts is not None:
            tables = {"title": texts.tokens["title"], "abstract": texts.tokens["body"]}
            columns |= {name: _token_lists(tables[name]) for name in NEWS_TOKENS if name in wanted}
            for name in (name for name in CATEGORIES if name in wanted and name in data.texts.categories):
                columns[name] = data.texts.categories[name]
                categories[name] = tuple(data.texts.category_names[name])
                sizes[f"n_{name[:-1]}ies"] = int(data.texts.categories[name].max(initial=0)) + 1
        files[ITEMS] = arrow_file(columns)
        histories = data.histories or Ragged.of([[]] * data.n_users)
        users = _names(source, "users", data.n_users)
        files[USERS] = arrow_file({"id": users, "history": as_lists(histories)})
        first = np.flatnonzero(histories.lengths > 0)[:1]
        example = users[int(first[0])].as_py() if len(first) else None
    settings = {"max_len": data.train.max_length} if request.model == "bert4rec" else {}
    settings |= request.settings
    if request.vectors is not None:  # their width is the model's
        settings["embedding"] = model.words.width
    asked = {name: value for name, value in identity_of(request).items() if value is not None}
    record = ModelRecord(
        model=request.model,
        task=data.name,
        settings=settings,
        sizes=sizes,
        lengths={"title": request.title_words, "body": request.body_words},
        history=request.history,
        metric=request.metric,
        k=request.k or "",
        categories=categories,
        example=example,
        provenance={
            **{name: value for name, value in asked.items() if name not in _NOT_PROVENANCE},
            "split": data.split,
            "data_digest": data.digest,
            "negwise": negwise.__version__,
        },
    )
    return with_manifest(record, files)


def arrow_file(columns: Mapping[str, Any]) -> bytes:
    """Columns of equal length as an Arrow file."""
    pa = require("pyarrow", extra="train")
    table = pa.table(dict(columns))
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def as_lists(lists: Ragged) -> Any:
    """Ragged lists as an Arrow column, with ids as small as will hold them."""
    pa = require("pyarrow", extra="train")
    ids = lists.ids.astype(np.int32 if lists.ids.max(initial=0) < 2**31 else np.int64)
    return pa.LargeListArray.from_arrays(lists.offsets, ids)


def _token_lists(table: NDArray[np.int32]) -> Any:
    """A table (N, L) of token ids, padding 0 on the right, as lists without it."""
    lengths = (table != 0).sum(1)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return as_lists(Ragged(offsets, table[table != 0].astype(np.int64)))


def _names(source: Source | None, table: str, count: int) -> Any:
    """The ids of the data as texts; numbers from 0 where it has none."""
    pa = require("pyarrow", extra="train")
    if source is None:
        return pa.array([str(number) for number in range(count)], pa.large_string())
    return source.tables[table]["id"].cast(pa.large_string()).combine_chunks()
