"""Hard negatives for the next run: texts that score high, without those that are likely to be right answers.

P pairs, N distinct right texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from negwise import datasets
from negwise.datasets import Ragged
from negwise.errors import InputError, quote, require
from negwise.inference.best_candidates import NOBODY, check_n, top_n
from negwise.inference.encoding import resolve
from negwise.inference.given_values import columns_of, several
from negwise.inference.progress import Progress, shown
from negwise.inference.table_files import check_apart, write_table
from negwise.words import split_words

if TYPE_CHECKING:
    from negwise.inference.text_model import TextModel

PAIRS_AT_ONCE = 4096


def mine(
    model: TextModel,
    pairs: Any,
    n: int,
    margin: float,
    *,
    columns: Mapping[str, str] | None,
    out: str | PathLike[str] | None,
    device: str,
    progress: Progress,
) -> Any:
    """See `TextModel.mine`."""
    check_n(n)
    if not isinstance(margin, int | float) or not 0 <= margin < math.inf:
        raise InputError(f"margin: got {margin!r}, expected a number, 0 or more, as 0.05.")
    check_apart(out, pairs if isinstance(pairs, str | PathLike) else None)
    left, right = read_pairs(pairs, columns)
    asking, texts = list(dict.fromkeys(left)), list(dict.fromkeys(right))
    place_of = {text: place for place, text in enumerate(asking)}
    row = np.array([place_of[text] for text in left], np.int64)
    place_of = {text: place for place, text in enumerate(texts)}
    positive = np.array([place_of[text] for text in right], np.int64)
    where = resolve(device)
    queries = torch.from_numpy(model.encode(asking, side="left", device=device, progress=progress)).to(where)
    vectors = torch.from_numpy(model.encode(texts, device=device, progress=progress)).to(where)
    answers = known_answers(row, positive, texts, len(asking))
    # Left vectors have length 1 / temperature, so scores are that many times the cosine.
    closest = margin / (getattr(model.network, "temperature", None) or 1.0)
    found = []
    with shown(progress, "pairs", len(left)) as tell:
        for start in range(0, len(left), PAIRS_AT_ONCE):
            asked, right_ones = row[start : start + PAIRS_AT_ONCE], positive[start : start + PAIRS_AT_ONCE]
            these, own = queries[torch.from_numpy(asked)], vectors[torch.from_numpy(right_ones)]
            limit = (these * own).sum(1) - closest
            found.append(top_n(these, vectors, n, exclude=answers.take(asked), at_most=limit)[0].cpu().numpy())
            tell(len(asked))
    table = _as_table(left, right, texts, np.concatenate(found), n)
    if out is not None:
        write_table(out, table)
    return table


def read_pairs(pairs: Any, columns: Mapping[str, str] | None = None) -> tuple[list[str], list[str]]:
    """Left and right texts of a file or a frame, or of (left, right) values."""
    given = pairs if _is_data(pairs) else several("pairs", pairs)
    if _is_data(given):
        source = datasets.read(given, columns=columns)
        if source.kind != "pairs":
            raise InputError(f"{source.path}: {source.kind} data, expected text pairs: columns as query and positive.")
        table = source.tables["pairs"]
        return table["left"].to_pylist(), table["right"].to_pylist()
    for place, pair in enumerate(given):
        if not isinstance(pair, Sequence) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise InputError(f"pairs: number {place} is {quote(pair)}, expected two texts, (left, right).")
    if not given:
        raise InputError("pairs: got none, expected one or more.")
    return [left for left, _ in given], [right for _, right in given]


def _is_data(pairs: Any) -> bool:
    """Whether this is something that has columns: a file, a frame, or rows by name."""
    if isinstance(pairs, str | PathLike):
        return True
    return columns_of(pairs) is not None or (isinstance(pairs, list) and bool(pairs) and isinstance(pairs[0], Mapping))


def known_answers(
    row: np.ndarray[Any, Any], positive: np.ndarray[Any, Any], texts: Sequence[str], asking: int
) -> Ragged:
    """Of each left text, the places of all right texts that have the words of one that a pair joins with it."""
    number: dict[tuple[str, ...], int] = {}
    same = np.array([number.setdefault(tuple(split_words(text)), len(number)) for text in texts], np.int64)
    alike = Ragged.in_order(same, np.arange(len(texts)), len(number))
    lists = alike.take(same[positive])
    return Ragged.of_pairs(row[lists.rows], lists.ids, asking)


def _as_table(left: list[str], right: list[str], texts: list[str], ids: np.ndarray[Any, Any], n: int) -> Any:
    pa = require("pyarrow", extra="train")
    names = pa.array([*texts, None], pa.large_string())  # -1, nobody, is the last
    columns = {"query": pa.array(left, pa.large_string()), "positive": pa.array(right, pa.large_string())}
    ids = np.pad(ids, ((0, 0), (0, n - ids.shape[1])), constant_values=NOBODY)
    for place in range(n):
        chosen = np.where(ids[:, place] == NOBODY, len(texts), ids[:, place])
        columns[f"negative_{place + 1}"] = names.take(pa.array(chosen))
    return pa.table(columns)
