"""The weights of an older model as the start of a new one: what both know is copied, what is new stays as drawn.

Items, users, words and categories are found by their names, since their numbers follow from the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from negwise.errors import InputError, require
from negwise.inference.model_folder import ModelFolder
from negwise.models import WordTokenizer
from negwise.records import ITEMS, MODEL, TOKENIZER, USERS, ModelRecord, encode, read_checked
from negwise.requests import TrainRequest
from negwise.tasks import Task

MASK = ("mask",)
"""The name of BERT4Rec's mask, the last row of its items; no id is a tuple."""
ROWS = {
    "items.weight": "items",
    "users.weight": "users",
    "words.embedding.weight": "words",
    "category_view.weight": "category",
    "category_view.embedding.weight": "category",
    "subcategory_view.weight": "subcategory",
    "subcategory_view.embedding.weight": "subcategory",
    "positions.weight": "positions",
}
"""What the rows of a table stand for; all other weights keep their place."""

Names = Mapping[str, Sequence[Any]]


def like_model(request: TrainRequest, record: ModelRecord) -> TrainRequest:
    """``request`` for a model of the same kind and sizes as that of ``record``."""
    settings = {name: value for name, value in record.settings.items() if name != "max_len"}
    return replace(
        request,
        model=record.model,
        settings=settings,
        history=record.history,
        title_words=record.lengths["title"],
        body_words=record.lengths["body"],
    )


def learnt_from(record: ModelRecord) -> tuple[str, ...]:
    """What the model of ``record`` learnt from, its own start included: digest and split of each data set."""
    known = record.provenance
    own = f"{known.get('data_digest', 'unknown')}, split {known.get('split', 'unknown')}"
    return tuple(dict.fromkeys((*known.get("learnt_from", ()), own)))


def copy_weights(task: Task, request: TrainRequest, older: ModelFolder) -> str:
    """Give the model of ``task`` the weights of ``older``. Returns what both know, in words."""
    files = task.assets(request)
    mine = _names(files, json.loads(files[MODEL]))
    named = [name for name in (ITEMS, USERS, TOKENIZER) if name in older.record.files]
    theirs = _names({name: read_checked(older.files, name, older.record) for name in named}, encode(older.record))
    before, state = older.weights(), task.model.state_dict()
    if strange := sorted(before.keys() ^ state.keys()):
        raise InputError(_other_model(older, f"one of them has {strange[0]}, the other has not"))
    shared = []
    for name, values in state.items():
        rows = ROWS.get(name)
        if rows is None or rows not in mine:
            _check_shape(older, name, before[name].shape, values.shape)
            state[name] = before[name]
            continue
        _check_shape(older, name, before[name].shape[1:], values.shape[1:])
        known = theirs.get(rows, ())
        state[name] = _by_name(values, before[name], mine[rows], known)
        if rows != "positions":
            both = len(set(mine[rows]) & set(known) - {MASK})
            shared.append(f"{both:,} of {len(set(mine[rows]) - {MASK}):,} {_PLURAL.get(rows, rows)}")
    task.model.load_state_dict(state)
    return ", ".join(shared) or "all weights"


_PLURAL = {"category": "categories", "subcategory": "subcategories"}


def _by_name(values: Tensor, before: Tensor, mine: Sequence[Any], theirs: Sequence[Any]) -> Tensor:
    """``values`` (N, D) with the row of ``before`` (M, D) wherever a name of ``mine`` is one of ``theirs``."""
    place = {name: row for row, name in enumerate(theirs)}
    pairs = [(row, place[name]) for row, name in enumerate(mine) if name in place]
    found = values.clone()
    if pairs:
        to, of = torch.tensor(pairs).T
        found[to] = before[of].to(found.dtype)
    return found


def _names(files: Mapping[str, bytes], record: Mapping[str, Any]) -> Names:
    """The names of the rows of each table, from the files that make a model usable without its data."""
    found: dict[str, Sequence[Any]] = {name: tuple(names) for name, names in record["categories"].items()}
    if TOKENIZER in files:
        found["words"] = WordTokenizer.from_json(files[TOKENIZER]).words
    for name, table in (("items", ITEMS), ("users", USERS)):
        if table in files:
            found[name] = _ids(files[table])
    if record["model"] == "bert4rec":
        found["items"] = (*found.get("items", ()), MASK)
        found["positions"] = range(record["settings"]["max_len"])
    return found


def _ids(content: bytes) -> list[str]:
    pa = require("pyarrow", extra="train")
    return pa.ipc.open_file(pa.py_buffer(content)).read_all()["id"].to_pylist()


def _check_shape(older: ModelFolder, name: str, theirs: Sequence[int], mine: Sequence[int]) -> None:
    if tuple(theirs) != tuple(mine):
        raise InputError(_other_model(older, f"{name} is {tuple(theirs)} there and {tuple(mine)} here"))


def _other_model(older: ModelFolder, how: str) -> str:
    return f"{older.path}: a {older.record.model} of another shape: {how}. Leave --from out to begin anew."
