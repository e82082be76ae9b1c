"""`load`: from a folder to a model that can be used."""

from __future__ import annotations

import inspect
from os import PathLike
from typing import Any

import numpy as np
import torch

from negwise.datasets import Ragged
from negwise.errors import InputError
from negwise.inference.articles import ArticleReader
from negwise.inference.id_map import IdMap
from negwise.inference.model_folder import ModelFolder, find_model
from negwise.inference.recommender import Recommender
from negwise.inference.text_model import TextModel
from negwise.models import WordTokenizer, build
from negwise.records import ITEMS, TOKENIZER, USERS, read_checked
from negwise.records.checkpoint_records import WEIGHTS

TrainedModel = TextModel | Recommender


def load(folder: str | PathLike[str]) -> TrainedModel:
    """Open a trained model: of a job (its winner), of a run (its best weights), or of an exported folder.

    No data is needed. The result is a `TextModel` if it was trained on text pairs, else a `Recommender`.

    >>> nw.load("jobs/mine").recommend(["user 42"], n=10)  # doctest: +SKIP
    """
    home = find_model(folder)
    tokenizer = None
    if TOKENIZER in home.record.files:
        tokenizer = WordTokenizer.from_json(read_checked(home.files, TOKENIZER, home.record))
    if home.record.task == "pairs":
        if tokenizer is None:
            raise InputError(
                f"{home.files}: no {TOKENIZER}, which a model of texts needs. Copy the folder again, whole."
            )
        empty = np.zeros((1, 1), np.int64)  # texts come with each call
        return TextModel(home, _network(home, {"left": empty, "right": empty}), tokenizer)
    return _recommender(home, tokenizer)


def _recommender(home: ModelFolder, tokenizer: WordTokenizer | None) -> Recommender:
    items, users = home.table(ITEMS), home.table(USERS)
    if items is None:
        raise InputError(f"{home.files}: no {ITEMS}, which a recommender needs. Copy the folder again, whole.")
    content: dict[str, Any] = {}
    for name in items.column_names[1:]:
        column = items[name]
        is_lists = name in ("title", "abstract")
        content[name] = _padded(Ragged.of_arrow(column)) if is_lists else column.to_numpy()
    network = _network(home, content)
    reader = None
    if tokenizer is not None:
        wanted = tuple(inspect.signature(network.encode_news).parameters)
        reader = ArticleReader(tokenizer, home.record, wanted)
    histories = None
    if users is not None and "history" in users.column_names:
        histories = Ragged.of_arrow(users["history"])
    return Recommender(
        home,
        network,
        IdMap(_ids(items), "items"),
        None if users is None else IdMap(_ids(users), "users"),
        histories,
        reader,
    )


def _network(home: ModelFolder, content: dict[str, Any]) -> Any:
    """The model with its weights, in evaluation mode on the CPU; the caller's random numbers stay as they were."""
    record = home.record
    with torch.random.fork_rng(devices=[]):
        network = build(record.model, {**record.sizes, **content}, **record.settings)
    weights = home.weights()
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        where = home.checkpoint or home.files
        raise InputError(f"{where / WEIGHTS}: these weights are of another model. {error}") from error
    return network.eval().requires_grad_(False)


def _ids(table: Any) -> Any:
    return table["id"].combine_chunks()


def _padded(lists: Ragged) -> Any:
    """Lists of token ids as a table (N, L), padding 0 on the right."""
    width = max(int(lists.lengths.max(initial=0)), 1)
    table = np.zeros((len(lists), width), np.int32)
    table[np.arange(width) < lists.lengths[:, None]] = lists.ids
    return table
