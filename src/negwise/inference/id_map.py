"""Ids as people write them, and the row numbers that a model counts in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets import Ragged
from negwise.datasets.id_columns import FLOAT_OF_SEVERAL, id_texts, stands_for_several
from negwise.datasets.ragged import offsets_of
from negwise.datasets.row_blocks import Wrong
from negwise.errors import InputError, quote, require

Ints = NDArray[np.int64]
UNKNOWN = -1
SHOWN = 5
"""Unknown ids that an error names."""


@dataclass(frozen=True, eq=False)
class IdMap:
    """``names`` (N,) is an Arrow column of texts; ``what`` they name, as "items". Row r is number r.

    An id is looked up by its text, as training made it (`id_column`).
    """

    names: Any
    what: str

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return bool(self.numbers([name])[0] != UNKNOWN)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names.to_pylist())}

    def numbers(self, ids: Iterable[Any]) -> Ints:
        """The number of each id, `UNKNOWN` where there is none."""
        given, known = list(ids), self._number
        if set(map(type, given)) <= {str} and None not in (found := list(map(known.get, given))):
            return np.array(found, np.int64)  # all of them are names as they are
        texts = id_column(given, self.what)
        codes = [known.get(text, UNKNOWN) for text in texts.dictionary.to_pylist()]
        places = texts.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)
        return np.array([*codes, UNKNOWN], np.int64)[places]

    def known(self, ids: Iterable[Any], unknown: str, hint: str = "") -> Ints:
        """The numbers of the ids that are known; with ``unknown="error"`` all of them have to be."""
        found = self._checked(list(ids), unknown, hint)
        return found[found != UNKNOWN]

    def known_lists(self, lists: Sequence[Sequence[Any]], unknown: str) -> Ragged:
        """The same for lists of ids, list by list."""
        found = self._checked([one for row in lists for one in row], unknown)
        kept = found != UNKNOWN
        rows = np.repeat(np.arange(len(lists)), [len(row) for row in lists])[kept]
        return Ragged(offsets_of(np.bincount(rows, minlength=len(lists))), found[kept])

    def _checked(self, given: list[Any], unknown: str, hint: str = "") -> Ints:
        found = self.numbers(given)
        if unknown == "error" and (found == UNKNOWN).any():
            self.refuse([given[at] for at in np.flatnonzero(found == UNKNOWN)], len(given), hint)
        return found

    def refuse(self, strange: list[Any], of: int, hint: str = "") -> None:
        """Raise: these ids are unknown. ``hint`` says what else there is to do."""
        shown = ", ".join(quote(one) for one in strange[:SHOWN]) + (", ..." if len(strange) > SHOWN else "")
        example = f", such as {quote(self.names[0].as_py())}" if len(self.names) else ""
        raise InputError(
            f"{self.what}: got {shown} ({len(strange)} of {of}), which training did not see; expected ids as the data "
            f"has them{example}. {hint}Leave them out with unknown='skip' (--unknown skip)."
        )

    def text(self, numbers: Ints) -> list[str]:
        """The ids of ``numbers``."""
        pa = require("pyarrow", extra="train")
        return self.names.take(pa.array(numbers)).to_pylist()

    def followed_by(self, names: Iterable[str]) -> IdMap:
        """The same with more names, which are new."""
        pa = require("pyarrow", extra="train")
        more = pa.array(list(names), self.names.type)
        return IdMap(pa.concat_arrays([self.names, more]), self.what)


def id_column(values: Sequence[Any], what: str) -> Any:
    """Ids as the readers of data make them, an Arrow dictionary array: blanks around a text are left out, 42 and 42.0
    are "42". An empty text, which no data has as an id, is null; what can be no id is refused."""
    plain = [_plain(value) for value in values]
    wrong: Wrong = {}
    texts = id_texts(plain, what, wrong)
    for row in wrong:
        if not isinstance(plain[row], str):
            why = f" {FLOAT_OF_SEVERAL}" if stands_for_several(plain[row]) else ""
            raise InputError(
                f"{what}: got {quote(values[row])} of type {type(values[row]).__name__}, expected an id: a text or a "
                f"whole number.{why}"
            )
    return texts


def _plain(value: Any) -> str | int | float | None:
    """``value`` in Python's own types; None for what can be no id."""
    if isinstance(value, np.generic) and value.dtype.kind in "iufU":  # a moment would become a number
        value = value.item()
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None
