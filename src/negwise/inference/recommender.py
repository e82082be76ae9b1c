"""A recommender, ready to be used: items for users and for histories, similar items, vectors, new articles.

Q queries, N items, D width. The score of a history and an item is the product of their vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from negwise.datasets import Ragged
from negwise.errors import InputError
from negwise.inference.articles import ArticleReader
from negwise.inference.best_candidates import TopN, check_n, top_n
from negwise.inference.encoding import BATCH, Floats, batches, encoded, joined, length_of, no_such, resolve
from negwise.inference.export_folder import export_model
from negwise.inference.id_map import IdMap, as_text, check_unknown
from negwise.inference.model_folder import ModelFolder
from negwise.inference.progress import Progress, shown
from negwise.inference.queries import Asked, ask, candidate_numbers, encode_histories, rank_lists, rank_shared, several
from negwise.records import ModelRecord, Outcome

ITEMS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Recommender:
    """A model that was trained on sequences (BERT4Rec) or on impressions of news (NRMS, NAML, LSTUR).

    ``items`` and ``users`` are the ids of the data; ``histories`` all items of each user, None where the folder was
    exported without them. ``added`` are vectors of articles that came later (`with_items`).
    """

    home: ModelFolder
    network: Any
    items: IdMap
    users: IdMap | None = None
    histories: Ragged | None = None
    reader: ArticleReader | None = None
    added: Floats | None = None

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
        batch_size: int = BATCH,
        device: str = "auto",
        progress: Progress = False,
    ) -> TopN:
        """The ``n`` best items for each of ``users``, by all that the data had of them, or for each of ``histories``.

        A history is a list of item ids, the oldest first. With both, row by row, it goes before what the data had.
        ``exclude_seen`` leaves out the items of the history. ``candidates`` are the items to choose from, each once: a
        list of ids, or a list of such lists, one a row. Unknown ids and empty histories are an error that names them;
        ``unknown="skip"`` leaves them out, and ``left_out`` of the result says whom.

        >>> model.recommend(["user 42"], n=2)[0]  # doctest: +SKIP
        [('item 7', 3.1), ('item 9', 2.8)]
        """
        check_unknown(unknown)
        where = resolve(device)
        asked = ask(self.items, self.users, self.histories, users, histories, unknown, self._knows_users)
        table = self._vectors.to(where)
        among = None if candidates is None else candidate_numbers(self.items, candidates, asked.kept, unknown)
        choice = self.items if among is None else among
        width = min(check_n(n), int(choice.lengths.max(initial=0)) if isinstance(choice, Ragged) else len(choice))
        parts = []
        with shown(progress, "queries", len(asked.names)) as tell:
            for part in batches(range(len(asked.names)), batch_size):
                some = asked.take(np.array(part))
                queries = self._queries(some, table, where)
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
        check_unknown(unknown)
        where = resolve(device)
        wanted = several("items", items)
        numbers = self.items.known(wanted, unknown)
        left_out = [one for one, number in zip(wanted, self.items.numbers(wanted), strict=True) if number < 0]
        directions = torch.nn.functional.normalize(self._vectors.to(where), dim=1)
        own = Ragged(np.arange(len(numbers) + 1), numbers)
        ids, scores = top_n(directions[torch.from_numpy(numbers).to(where)], directions, n, exclude=own)
        names = self.items.text(numbers)
        return TopN(names, ids.cpu().numpy(), scores.cpu().numpy(), self.items.text, tuple(left_out))

    def item_vectors(self) -> Floats:
        """Vectors (N, D) float32 of all items, in the order of `item_ids`."""
        return self._vectors.numpy().copy()

    def item_ids(self) -> list[str]:
        """The ids of all items, as the data has them."""
        return self.items.names.to_pylist()

    def user_ids(self) -> list[str]:
        """The ids of all users that the folder knows."""
        return [] if self.users is None else self.users.names.to_pylist()

    def history(self, user: Any) -> list[str]:
        """All items that the data had of ``user``, the oldest first."""
        asked = ask(self.items, self.users, self.histories, [user], None, "error", self._knows_users)
        return self.items.text(asked.histories.ids)

    def encode(
        self,
        texts: Iterable[Any],
        *,
        batch_size: int = BATCH,
        device: str = "auto",
        progress: Progress = False,
    ) -> Floats:
        """Vectors (N, D) of news articles by their text: titles, or objects with ``title``, ``abstract``, ``category``
        and ``subcategory``, of which the model takes what it reads."""
        if self.reader is None:
            raise InputError(
                f"encode: {self.record.model} knows items by their ids and reads no text. For their vectors: "
                "item_vectors()."
            )
        reader, where = self.reader, resolve(device)
        self.network.to(where)
        with shown(progress, "articles", length_of(texts)) as tell:

            def parts() -> Iterable[Mapping[str, Tensor]]:
                first = 0
                for part in batches(texts, batch_size):
                    yield reader.read(part, first)
                    first += len(part)
                    tell(len(part))

            found = encoded(parts(), self.network.encode_news, where)
            return joined(found, length_of(texts), self._vectors.shape[1])

    def with_items(self, articles: Iterable[Mapping[str, Any]]) -> Recommender:
        """The same recommender with more items, which it can recommend and find in histories from now on.

        Each article is an object with a new ``id`` and what `encode` takes.
        """
        given = list(articles)
        for place, article in enumerate(given):
            if not isinstance(article, Mapping) or "id" not in article:
                raise InputError(f"articles: number {place} has no id; expected an object with id and title.")
        names = [as_text(article["id"], "articles") for article in given]
        twice = [name for place, name in enumerate(names) if name in self.items or name in names[:place]]
        if twice:
            raise InputError(f"articles: {', '.join(map(repr, twice[:5]))} is there already, expected new ids.")
        vectors = self.encode(given)
        added = vectors if self.added is None else np.concatenate((self.added, vectors))
        return replace(self, items=self.items.followed_by(names), added=added)

    def export(
        self, folder: str | PathLike[str], *, vectors: bool = False, onnx: bool = False, histories: bool = False
    ) -> Path:
        """Write a folder that `negwise.load` opens anywhere: weights, ids, settings and a model card.

        ``histories`` adds what the data had of each user, who can then be asked for by id; without it no user is in the
        folder, but for models that have learnt a vector of each. ``vectors`` adds those of all items as ``vectors.npy``
        and ``vectors.parquet``, ``onnx`` the encoder as ONNX.
        """
        if self.added is not None:
            raise InputError("export: items were added by their text, which no folder keeps. Export before with_items.")
        items = (self.item_ids(), self.item_vectors()) if vectors else None
        return export_model(self.home, self.network, folder, onnx=onnx, vectors=items, histories=histories)

    @property
    def _knows_users(self) -> bool:
        """Whether the model has a vector of each user, so that a user without a history means something."""
        return hasattr(self.network, "users")

    @cached_property
    def _vectors(self) -> Tensor:
        """(N, D) on the CPU; each item is encoded once."""
        device = next(self.network.parameters()).device
        count = len(self.items) - (0 if self.added is None else len(self.added))
        parts = []
        with torch.no_grad():
            for start in range(0, count, ITEMS_AT_ONCE):
                ids = torch.arange(start, min(start + ITEMS_AT_ONCE, count), device=device)
                parts.append(self.network.encode_candidates(ids).float().cpu())
        if self.added is not None:
            parts.append(torch.from_numpy(self.added))
        return torch.cat(parts)

    def _queries(self, asked: Asked, table: Tensor, device: str) -> Tensor:
        self.network.to(device)
        with torch.no_grad():
            return encode_histories(self.network, asked, self.record.history, table).float()
