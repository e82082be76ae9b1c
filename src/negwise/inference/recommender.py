"""A recommender, ready to be used: items for users and for histories, similar items, vectors, new articles.

Q queries, N items, D width. The score of a history and an item is the product of their vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from negwise.datasets import Ragged
from negwise.errors import InputError
from negwise.inference.articles import ArticleReader, as_rows
from negwise.inference.best_candidates import TopN, check_n, top_n
from negwise.inference.encoding import BATCH, Floats, batches, encoded, joined, length_of, no_such, resolve
from negwise.inference.export_folder import export_model
from negwise.inference.given_values import several
from negwise.inference.id_map import UNKNOWN, IdMap, id_column
from negwise.inference.model_folder import ModelFolder
from negwise.inference.progress import Progress, shown
from negwise.inference.queries import (
    Asked,
    ask,
    candidate_numbers,
    check_policies,
    encode_histories,
    rank_lists,
    rank_shared,
)
from negwise.records import ModelRecord, Outcome
from negwise.stages import stage

ITEMS_AT_ONCE = 1024
GPU_NUMBERS = 1 << 23
"""Numbers in the vectors of the histories that a GPU encodes at a time, 32 MB, several times over."""


@dataclass(frozen=True, eq=False)
class Recommender:
    """A model that was trained on sequences (BERT4Rec) or on impressions of news (NRMS, NAML, LSTUR).

    ``items`` and ``users`` are the ids of the data; ``histories`` all items of each user, None where the folder was
    exported without them. The last ``added`` of the items came later, by their text (`with_items`).
    """

    home: ModelFolder
    network: Any
    items: IdMap
    users: IdMap | None = None
    histories: Ragged | None = None
    reader: ArticleReader | None = None
    added: int = 0
    _tables: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __repr__(self) -> str:
        people = "no users" if self.users is None else f"{len(self.users):,} users"
        return f"Recommender({self.record.model}, {len(self.items):,} items, {people}, {self.home.path})"

    @property
    def record(self) -> ModelRecord:
        """What the model is: name, settings, metric, K, provenance."""
        return self.home.record

    @property
    def outcome(self) -> Outcome:
        """What its run came to."""
        return self.home.outcome

    def __getattr__(self, name: str) -> Any:
        return no_such(self, name, "a recommender", "recommend, similar, item_vectors, encode, with_items and export")

    def recommend(
        self,
        users: Iterable[Any] | None = None,
        histories: Iterable[Iterable[Any]] | None = None,
        *,
        n: int = 10,
        exclude_seen: bool = True,
        candidates: Sequence[Any] | None = None,
        unknown: str = "error",
        empty: str | None = None,
        batch_size: int | None = None,
        device: str = "auto",
        progress: Progress = False,
    ) -> TopN:
        """The ``n`` best items for each of ``users``, by all that the data had of them, or for each of ``histories``.

        A history is a list of item ids, the oldest first. With both, row by row, it goes before what the data had.
        ``exclude_seen`` leaves out the items of the history. ``candidates`` are the items to choose from, each once: a
        list of ids, or a list of such lists, one a row. Unknown ids and empty histories are an error that names them;
        ``unknown="skip"`` leaves them out, and ``left_out`` of the result says whom. ``empty`` says another thing of
        empty histories: "error", "skip", or "serve", as evaluation does. LSTUR then goes by the user alone, BERT4Rec by
        what begins a sequence; NRMS and NAML know nothing and score every item 0. ``batch_size`` histories are encoded
        at a time: 1,024, and on a GPU more where they are short.

        >>> model.recommend(["user 42"], n=2)[0]  # doctest: +SKIP
        [('item 7', 3.1), ('item 9', 2.8)]
        """
        empty = check_policies(unknown, empty)
        if not isinstance(exclude_seen, bool):
            raise InputError(f"exclude_seen: got {exclude_seen!r}, expected True or False.")
        where = resolve(device)
        asked = self._ask(users, histories, unknown, empty)
        among = None if candidates is None else candidate_numbers(self.items, candidates, asked, unknown)
        table = self._table(where)
        choice = self.items if among is None else among
        width = min(check_n(n), int(choice.lengths.max(initial=0)) if isinstance(choice, Ragged) else len(choice))
        parts = []
        with shown(progress, "queries", len(asked.names)) as tell:
            for part in batches(range(len(asked.names)), self._at_a_time(where) if batch_size is None else batch_size):
                some = asked.take(np.array(part))
                queries = self._queries(some, table)
                seen = some.histories if exclude_seen else None
                if among is None:
                    found = top_n(queries, table, width, exclude=seen)
                elif isinstance(among, Ragged):
                    found = rank_lists(queries, table, width, among.take(np.array(part)), seen)
                else:
                    found = rank_shared(queries, table, width, among, seen)
                parts.append([one.cpu().numpy() for one in found])
                tell(len(part))
        ids = np.concatenate([np.zeros((0, width), np.int64), *(part[0] for part in parts)])
        scores = np.concatenate([np.zeros((0, width), np.float32), *(part[1] for part in parts)])
        return TopN(asked.names, ids, scores, self.items.text, asked.left_out)

    def similar(self, items: Iterable[Any], n: int = 10, *, unknown: str = "error", device: str = "auto") -> TopN:
        """The ``n`` other items whose vectors have the highest cosine similarity with that of each of ``items``."""
        check_policies(unknown, None)
        where = resolve(device)
        wanted = several("items", items)
        numbers = self.items.known(wanted, unknown)
        left_out = [one for one, number in zip(wanted, self.items.numbers(wanted), strict=True) if number < 0]
        directions = torch.nn.functional.normalize(self._table(where), dim=1)
        own = Ragged(np.arange(len(numbers) + 1), numbers)
        ids, scores = top_n(directions[torch.from_numpy(numbers).to(where)], directions, n, exclude=own)
        names = self.items.text(numbers)
        return TopN(names, ids.cpu().numpy(), scores.cpu().numpy(), self.items.text, tuple(left_out))

    def item_vectors(self, *, device: str = "auto") -> Floats:
        """Vectors (N, D) float32 of all items, in the order of `item_ids`."""
        return self._table(resolve(device)).cpu().numpy().copy()

    @cached_property
    def width(self) -> int:
        """D, the length of a vector."""
        first = torch.zeros(1, dtype=torch.int64, device=next(self.network.parameters()).device)
        with torch.no_grad():
            return int(self.network.encode_candidates(first).shape[1])

    def item_ids(self) -> list[str]:
        """The ids of all items, as the data has them."""
        return self.items.names.to_pylist()

    def user_ids(self) -> list[str]:
        """The ids of all users that the folder knows."""
        return [] if self.users is None else self.users.names.to_pylist()

    def history(self, user: Any) -> list[str]:
        """All items that the data had of ``user``, the oldest first."""
        return self.items.text(self._ask([user], None, "error", "serve").histories.ids)

    def encode(
        self,
        texts: Iterable[Any],
        *,
        batch_size: int = BATCH,
        device: str = "auto",
        progress: Progress = False,
    ) -> Floats:
        """Vectors (N, D) of news articles by their text: titles, or objects with ``title``, ``abstract`` (or ``body``),
        ``category`` and ``subcategory``, of which the model takes what it reads; or a frame with such columns."""
        texts = as_rows(texts)
        parts = self.encode_batches(texts, batch_size=batch_size, device=device, progress=progress)
        return joined(parts, length_of(texts), self.width)

    def encode_batches(
        self,
        texts: Iterable[Any],
        *,
        batch_size: int = BATCH,
        device: str = "auto",
        progress: Progress = False,
    ) -> Iterator[Floats]:
        """The same a batch at a time, (n, D), for more articles than memory holds."""
        if self.reader is None:
            raise InputError(
                f"encode: {self.record.model} knows items by their ids and reads no text. For their vectors: "
                "item_vectors() (negwise export MODEL --vectors)."
            )
        return self._batches(self.reader, texts, batch_size, resolve(device), progress)

    def _batches(
        self, reader: ArticleReader, texts: Iterable[Any], size: int, device: str, progress: Progress
    ) -> Iterator[Floats]:
        self.network.to(device)
        with shown(progress, "articles", length_of(texts)) as tell:
            parts = batches(as_rows(texts), size, "articles")
            for vectors in encoded(parts, reader.read, self.network.encode_news, device):
                tell(len(vectors))
                yield vectors

    def with_items(
        self, articles: Iterable[Mapping[str, Any]], *, batch_size: int = BATCH, device: str = "auto"
    ) -> Recommender:
        """The same recommender with more items, which it can recommend and find in histories from now on.

        Each article is an object with a new ``id`` and what `encode` takes. Any iterable, read a batch at a time, or a
        frame.
        """
        names: dict[str, None] = {}

        def checked() -> Iterator[Mapping[str, Any]]:
            for part in batches(as_rows(articles), batch_size, "articles"):
                self._add_ids(names, part)
                yield from part

        where = resolve(device)
        parts = [torch.from_numpy(part) for part in self.encode_batches(checked(), batch_size=batch_size, device=where)]
        more = replace(self, items=self.items.followed_by(names), added=self.added + len(names))
        more._tables[where] = torch.cat((self._table(where), *(part.to(where) for part in parts)))
        return more

    def _add_ids(self, names: dict[str, None], articles: list[Any]) -> None:
        """Add the ids of ``articles``, which have to be new, to ``names``."""
        first = len(names)
        for place, article in enumerate(articles):
            if not isinstance(article, Mapping) or article.get("id") is None:
                raise InputError(f"articles: number {first + place} has no id; expected an object with id and title.")
        ids = id_column([article["id"] for article in articles], "articles").cast("string").to_pylist()
        if None in ids:
            raise InputError(f"articles: number {first + ids.index(None)} has an empty text as its id.")
        for name, number in zip(ids, self.items.numbers(ids).tolist(), strict=True):
            if number != UNKNOWN or name in names:
                raise InputError(f"articles: {name!r} is there already, expected new ids.")
            names[name] = None

    def export(
        self, folder: str | PathLike[str], *, vectors: bool = False, onnx: bool = False, histories: bool = False
    ) -> Path:
        """Write a folder that `negwise.load` opens anywhere: weights, ids, settings and a model card.

        ``histories`` adds what the data had of each user, who can then be asked for by id; without it no user is in the
        folder, but for models that have learnt a vector of each. ``vectors`` adds those of all items as ``vectors.npy``
        and ``vectors.parquet``, ``onnx`` the encoder as ONNX.
        """
        if self.added:
            raise InputError("export: items were added by their text, which no folder keeps. Export before with_items.")
        items = (self.item_ids(), self.item_vectors()) if vectors else None
        return export_model(self.home, self.network, folder, onnx=onnx, vectors=items, histories=histories)

    def _ask(
        self,
        users: Iterable[Any] | None,
        histories: Iterable[Iterable[Any]] | None,
        unknown: str,
        empty: str,
    ) -> Asked:
        return ask(
            self.items,
            self.users,
            self.histories,
            users,
            histories,
            unknown=unknown,
            empty=empty,
            has_user_vectors=hasattr(self.network, "users"),
        )

    def _at_a_time(self, device: str) -> int:
        """Histories to encode at a time: a GPU takes more, where they are short."""
        return BATCH if device == "cpu" else max(BATCH, GPU_NUMBERS // (self.record.history * self.width))

    def _table(self, device: str) -> Tensor:
        """Vectors (N, D) of all items on ``device``: each item is encoded once, and each device keeps its copy."""
        if device not in self._tables:
            known = next(iter(self._tables.values()), None)
            self._tables[device] = self._encode_items(device) if known is None else known.to(device)
        return self._tables[device]

    def _encode_items(self, device: str) -> Tensor:
        self.network.to(device)
        parts, count = [], len(self.items)
        with torch.no_grad(), stage("encoding the items") as tell:
            for start in range(0, count, ITEMS_AT_ONCE):
                ids = torch.arange(start, min(start + ITEMS_AT_ONCE, count), device=device)
                parts.append(self.network.encode_candidates(ids).float())
                tell(start / count)
        return torch.cat(parts)

    def _queries(self, asked: Asked, table: Tensor) -> Tensor:
        self.network.to(table.device)
        with torch.no_grad():
            return encode_histories(self.network, asked, self.record.history, table).float()
