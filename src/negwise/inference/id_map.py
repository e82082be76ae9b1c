"""Ids as people write them, and the row numbers that a model counts in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.errors import InputError, quote, require

Ints = NDArray[np.int64]
UNKNOWN = -1
CHOICES = ("error", "skip")
SHOWN = 5
"""Unknown ids that an error names."""


@dataclass(frozen=True, eq=False)
class IdMap:
    """``names`` (N,) is an Arrow column of texts; ``what`` they name, as "items". Row r is number r.

    An id is looked up by its text. A whole number is its digits, so that 42 finds what a file wrote as ``42``.
    """

    names: Any
    what: str

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return as_text(name, self.what) in self._number

    @cached_property
    def _number(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names.to_pylist())}

    def numbers(self, ids: Iterable[Any]) -> Ints:
        """The number of each id, `UNKNOWN` where there is none."""
        known = self._number
        return np.array([known.get(as_text(one, self.what), UNKNOWN) for one in ids], np.int64)

    def known(self, ids: Iterable[Any], unknown: str, hint: str = "") -> Ints:
        """The numbers of the ids that are known; with ``unknown="error"`` all of them have to be."""
        given = list(ids)
        found = self.numbers(given)
        if unknown == "error" and (found == UNKNOWN).any():
            self.refuse([given[at] for at in np.flatnonzero(found == UNKNOWN)], len(given), hint)
        return found[found != UNKNOWN]

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


def as_text(value: Any, what: str) -> str:
    """An id as the data has it: texts as they are, whole numbers by their digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    raise InputError(
        f"{what}: got {quote(value)} of type {type(value).__name__}, expected an id: a text or a whole number."
    )


def check_unknown(unknown: str) -> None:
    if unknown not in CHOICES:
        raise InputError(f"unknown: got {unknown!r}, expected one of {', '.join(CHOICES)}.")
