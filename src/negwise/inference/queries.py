"""Who is asked for: users and histories as numbers, what is unknown refused or left out, and their vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.datasets import Ragged
from negwise.datasets.ragged import offsets_of
from negwise.datasets.task_data import padded_windows
from negwise.errors import InputError, quote
from negwise.inference.best_candidates import NOBODY, top_n
from negwise.inference.given_values import several
from negwise.inference.id_map import UNKNOWN, IdMap
from negwise.protocols import Query
from negwise.requests.model_requests import EMPTY_HISTORIES, UNKNOWN_IDS
from negwise.requests.option_fields import check_choice

Ints = NDArray[np.int64]
STRANGER = -1
"""The number of a person whom training did not see."""
GATHERED = 1 << 24
"""Numbers of candidates' vectors that are held at a time at most, where each query has candidates of its own: 64 MB."""
_STRANGERS = "People who were not there: histories=[[item, ...]] (--history ITEM,ITEM). "


@dataclass(frozen=True, eq=False)
class Asked:
    """Q queries: ``names`` to show, ``users`` (Q,) by number, the ``histories`` of each, whole; ``kept`` (Q,) are their
    places among all that were asked for, and ``left_out`` the names of the others."""

    names: list[Any]
    users: Ints
    histories: Ragged
    kept: Ints
    left_out: tuple[Any, ...] = ()

    @property
    def total(self) -> int:
        """How many were asked for, those that were left out included."""
        return len(self.names) + len(self.left_out)

    def take(self, rows: Ints) -> Asked:
        if len(rows) == len(self.names) and np.array_equal(rows, np.arange(len(rows))):
            return self
        return Asked([self.names[row] for row in rows], self.users[rows], self.histories.take(rows), self.kept[rows])


def check_policies(unknown: str, empty: str | None) -> str:
    """What is done with empty histories: ``empty``, or what ``unknown`` says of unknown ids."""
    check_choice("unknown", unknown or "", UNKNOWN_IDS)
    check_choice("empty", empty, EMPTY_HISTORIES)
    return empty or unknown


def ask(
    items: IdMap,
    people: IdMap | None,
    known: Ragged | None,
    users: Iterable[Any] | None,
    histories: Iterable[Iterable[Any]] | None,
    *,
    unknown: str,
    empty: str,
    has_user_vectors: bool,
) -> Asked:
    """Users by id, with ``known`` histories or with given ones; or ``histories`` alone, named by their row.

    With a history of one's own, a user whom training did not see is a stranger, and can be served. A user with a vector
    (``has_user_vectors``) can be served without a history, and with ``empty="serve"`` everybody can.
    """
    if users is None and histories is None:
        raise InputError("recommend: got neither users nor histories, expected one of them, as users=['42'].")
    names: list[Any] = [] if users is None else several("users", users)
    given = (
        None if histories is None else [several("each of histories", one) for one in several("histories", histories)]
    )
    if users is None:
        assert given is not None
        names, numbers = list(range(len(given))), np.full(len(given), STRANGER)
    else:
        numbers = _users(people, names, unknown if given is None else "skip", given is not None)
    if given is None:
        if known is None:
            raise InputError(
                "users: the folder was exported without histories. Pass histories=[[item, ...]], or export with "
                "histories=True (--histories)."
            )
        kept = np.flatnonzero(numbers != UNKNOWN)
        lists = known.take(numbers[kept])
    else:
        if len(given) != len(names):
            raise InputError(f"histories: got {len(given)} for {len(names)} users, expected one for each.")
        kept = np.arange(len(given))
        lists = items.known_lists(given, unknown)
    if empty != "serve":
        served = (numbers[kept] != STRANGER) & has_user_vectors
        kept, lists = _without_empty(names, kept, lists, empty, served)
    left_out = tuple(names[row] for row in np.delete(np.arange(len(names)), kept))
    return Asked([names[row] for row in kept], numbers[kept], lists, kept, left_out)


def candidate_numbers(items: IdMap, candidates: Sequence[Any], asked: Asked, unknown: str) -> Ints | Ragged:
    """The candidates of the queries, each once: numbers for all of them, or a list for each."""
    given = several("candidates", candidates)
    if not given:
        raise InputError("candidates: got none, expected item ids; leave it out for all items.")
    if isinstance(given[0], str) or not isinstance(given[0], Iterable):
        shared = np.array(list(dict.fromkeys(items.known(given, unknown).tolist())), np.int64)
        _check_some_known(len(shared), given)
        return shared
    if len(given) != asked.total:
        raise InputError(
            f"candidates: got {len(given)} lists for {asked.total} queries, expected one for each, or one list of ids."
        )
    own = [several("each of candidates", given[row]) for row in asked.kept]
    lists = items.known_lists(own, unknown)
    if own:
        _check_some_known(len(lists.ids), [one for row in own for one in row])
    return Ragged.in_order(lists.rows, lists.ids, len(lists))


def _check_some_known(known: int, given: list[Any]) -> None:
    if not known:
        shown = ", ".join(quote(one) for one in given[:5]) + (", ..." if len(given) > 5 else "")
        raise InputError(
            f"candidates: none of {shown or 'these lists'} is an item that training saw, expected one or more. For all "
            "items, leave candidates out."
        )


def encode_histories(network: Any, asked: Asked, length: int, table: Tensor) -> Tensor:
    """Vectors (Q, D) of histories, each cut to its last ``length`` items; ``table`` (N, D) are the items' vectors."""
    offsets = asked.histories.offsets
    width = max(min(length, int(np.diff(offsets).max(initial=0))), 1)
    items, mask = padded_windows(asked.histories.ids, offsets[:-1], offsets[1:], width)
    query = Query(torch.from_numpy(items), torch.from_numpy(mask), torch.from_numpy(asked.users)).to(table.device)
    return network.encode_queries(query, lambda ids: table[ids])


def rank_shared(queries: Tensor, table: Tensor, n: int, numbers: Ints, seen: Ragged | None) -> tuple[Tensor, Tensor]:
    """Ids and scores (Q, n) of the best among the items ``numbers``, n <= their count, without what is ``seen``."""
    exclude = None
    if seen is not None:
        place = np.full(len(table), NOBODY)
        place[numbers] = np.arange(len(numbers))
        at = place[seen.ids]
        kept = at != NOBODY
        exclude = Ragged(offsets_of(np.bincount(seen.rows[kept], minlength=len(seen))), at[kept])
    chosen = torch.from_numpy(numbers).to(table.device)
    ids, best = top_n(queries, table[chosen], n, exclude=exclude)
    return torch.where(ids == NOBODY, NOBODY, chosen[ids.clamp(min=0)]), best


def rank_lists(queries: Tensor, table: Tensor, n: int, lists: Ragged, seen: Ragged | None) -> tuple[Tensor, Tensor]:
    """Ids and scores (Q, n) of the best of each query's own list of candidates, without what is ``seen``.

    Places that nothing is on have the id -1 and the score -inf.
    """
    width = max(n, int(lists.lengths.max(initial=0)))
    rows = max(1, GATHERED // (width * table.shape[1]))
    ids = torch.empty((len(queries), n), dtype=torch.int64, device=table.device)
    best = torch.empty((len(queries), n), dtype=table.dtype, device=table.device)
    for start in range(0, len(queries), rows):
        part = slice(start, min(start + rows, len(queries)))
        at = np.arange(part.start, part.stop)
        own = lists.take(at)
        numbers, mask = padded_windows(own.ids, own.offsets[:-1], own.offsets[1:], width)
        if seen is not None:
            known, span = seen.take(at), len(table)
            mask &= ~np.isin(np.arange(len(at))[:, None] * span + numbers, known.rows * span + known.ids)
        places = torch.from_numpy(numbers).to(table.device)
        scores = torch.einsum("qd,qnd->qn", queries[part], table[places])
        scores = scores.masked_fill(~torch.from_numpy(mask).to(table.device), -torch.inf)
        order = scores.argsort(dim=1, descending=True, stable=True)[:, :n]
        best[part], ids[part] = scores.gather(1, order), places.gather(1, order)
    return ids.masked_fill_(best == -torch.inf, NOBODY), best


def _users(people: IdMap | None, names: list[Any], unknown: str, has_history: bool) -> Ints:
    if people is None:
        if has_history:
            return np.full(len(names), STRANGER)
        raise InputError(
            "users: the folder was exported without histories, so it knows no user. Pass histories=[[item, ...]], or "
            "export with histories=True (--histories)."
        )
    numbers = people.numbers(names)
    if unknown == "error" and (numbers == UNKNOWN).any():
        people.refuse([names[at] for at in np.flatnonzero(numbers == UNKNOWN)], len(names), _STRANGERS)
    return numbers


def _without_empty(
    names: list[Any], kept: Ints, lists: Ragged, empty: str, served: NDArray[np.bool_]
) -> tuple[Ints, Ragged]:
    """Without those who have no history and are not ``served``; with ``empty="error"`` there may be none."""
    there = (lists.lengths > 0) | served
    if there.all():
        return kept, lists
    if empty == "error":
        bare = [quote(names[row]) for row in kept[~there]]
        raise InputError(
            f"histories: {', '.join(bare[:5])}{', ...' if len(bare) > 5 else ''} ({len(bare)} of {len(names)}) "
            "without a single item, expected one or more. Leave them out with empty='skip' (--empty skip), or serve "
            "them as evaluation does with empty='serve' (--empty serve)."
        )
    return kept[there], lists.take(np.flatnonzero(there))
