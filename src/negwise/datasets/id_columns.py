"""Ids: every id is a text, and never becomes another one.

Text stays as it is but for white space around it; whole numbers are written out; floats are read where they hold a
whole number exactly, as a column of numbers with gaps does. Everything else is refused. N rows, V distinct values.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.row_blocks import Wrong
from negwise.datasets.table_cache import TableWriter
from negwise.errors import quote, require

EXACT = 2**53
"""From here on a float stands for several whole numbers."""
FLOAT_OF_SEVERAL = "From 2**53 on a float stands for several whole numbers."
WHITE_SPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""What ``str.strip()`` removes."""

Codes = NDArray[np.int32]


class IdMap:
    """Numbers for names, in the order of first appearance: for words, news, and users whose rows are long lists.

    Rows of short cells are numbered faster by `negwise.datasets.numbered_rows`.
    """

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def numbers(self, names: Any) -> Codes:
        """(N,) Numbers of a dictionary array of texts, whose dictionary is in the order of first appearance."""
        ids = self.ids
        known = [ids.setdefault(name, len(ids)) for name in names.dictionary.to_pylist()]
        return np.array(known, np.int32)[names.indices.to_numpy(zero_copy_only=False)] if known else _NONE

    def write(self, folder: Path, table: str) -> None:
        with TableWriter(folder, table, {"id": "string"}) as writer:
            writer.write({"id": list(self.ids)})


_NONE = np.zeros(0, np.int32)


def id_texts(column: Any, role: str, wrong: Wrong) -> Any:
    """The ids of ``column`` (N,) as a dictionary array. Rows without an id get a message in ``wrong``.

    Its dictionary has texts, or whole numbers that stand for their texts: numbers are compared and counted many times
    faster. It is in the order of first appearance, and may have a text twice.
    """
    arrow = require("pyarrow", extra="train")
    if isinstance(column, list):
        return _of_objects(arrow, column, role, wrong)
    encoded = _in_order(arrow, column) if isinstance(column, arrow.DictionaryArray) else _encode(arrow, column)
    if encoded is None:
        for row in range(len(column)):
            wrong.setdefault(row, _refused(column[row].as_py(), role))
        return arrow.DictionaryArray.from_arrays(arrow.nulls(len(column), arrow.int32()), arrow.array([], "string"))
    texts, refused = _value_texts(arrow, encoded.dictionary, role)
    codes = encoded.indices.cast(arrow.int32())
    if refused or codes.null_count:
        found = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        refused[-1] = f"no {role}"
        for row in np.flatnonzero(np.isin(found, list(refused))).tolist():
            wrong.setdefault(row, refused[int(found[row])])
    return arrow.DictionaryArray.from_arrays(codes, texts)


def keep(names: Any, good: NDArray[np.bool_] | None) -> Any:
    """The ``good`` rows of a dictionary array, its dictionary in the order of first appearance among them."""
    if good is None:
        return names
    arrow = require("pyarrow", extra="train")
    return _in_order(arrow, names.filter(arrow.array(good)))


def _encode(arrow: Any, column: Any) -> Any:
    """``column`` as a dictionary array; None for types that hold no ids."""
    kind, types = column.type, arrow.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        column = column.cast(arrow.binary())
    elif types.is_null(kind):
        column = column.cast(arrow.string())
    elif not (types.is_integer(kind) or types.is_floating(kind) or _is_text(types, kind)):
        return None
    return column.dictionary_encode()


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _value_texts(arrow: Any, values: Any, role: str) -> tuple[Any, dict[int, str]]:
    """(V,) texts, or whole numbers, of distinct values, and what is wrong with some of them."""
    compute = require("pyarrow.compute", extra="train")
    kind, types = values.type, arrow.types
    if types.is_integer(kind):
        missing = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)) if values.null_count else ()
        return values, {int(at): f"no {role}" for at in missing}
    if not _is_text(types, kind):
        made = [id_text(value, role) for value in values.to_pylist()]
        return arrow.array([text for text, _ in made], arrow.string()), _messages(made)
    texts = compute.utf8_trim(values.cast(arrow.string()).fill_null(""), characters=WHITE_SPACE)
    empty = np.flatnonzero(compute.equal(compute.binary_length(texts), 0).to_numpy(zero_copy_only=False)).tolist()
    refused = dict.fromkeys(empty, f"no {role}")
    buffer = texts.buffers()[2]
    if buffer is not None and b"\0" in memoryview(buffer).tobytes():
        made = [id_text(text, role) for text in texts.to_pylist()]
        refused |= _messages(made)
    return texts, refused


def _of_objects(arrow: Any, column: list[Any], role: str, wrong: Wrong) -> Any:
    made = [id_text(value, role) for value in column]
    for row, what in _messages(made).items():
        wrong.setdefault(row, what)
    return arrow.array([text for text, _ in made], arrow.string()).dictionary_encode()


def _messages(made: list[tuple[str | None, str | None]]) -> dict[int, str]:
    return {at: what for at, (_, what) in enumerate(made) if what is not None}


def id_text(value: Any, role: str) -> tuple[str | None, str | None]:
    """The text of one id, or what is wrong with it."""
    if value is None or value != value:  # a float that is no number
        return None, f"no {role}"
    if isinstance(value, float):
        if value.is_integer() and abs(value) < EXACT:
            return str(int(value)), None
        return None, _refused(value, role)
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return None, _refused(value, role)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None, _refused(value, role)
    text = str(value).strip()
    if "\0" in text:
        return None, f"{role} {quote(text)} has a NUL character, expected text or a whole number"
    if not is_valid_text(text):
        return None, f"{role} {quote(text)} has half of a surrogate pair, which is not valid text"
    return (text, None) if text else (None, f"no {role}")


def is_valid_text(text: str) -> bool:
    """Whether ``text`` can be written: JSON may escape half of a surrogate pair, as \\ud800."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(value: Any, role: str) -> str:
    if value is None:
        return f"no {role}"
    why = f" ({FLOAT_OF_SEVERAL[:-1]})" if stands_for_several(value) else ""
    return f"{role} {quote(value)} is a {type(value).__name__}, expected text or a whole number{why}"


def stands_for_several(value: Any) -> bool:
    """Whether ``value`` is a whole number that a float cannot tell from others."""
    return isinstance(value, float) and math.isfinite(value) and abs(value) >= EXACT


def _in_order(arrow: Any, column: Any) -> Any:
    """A dictionary array of the values that occur, in the order of first appearance; a categorical has others too."""
    codes = column.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    highest = np.maximum.accumulate(codes) if len(codes) else codes
    # In that order each new value has the next number.
    complete = not column.null_count and len(codes) and codes[0] == 0 and highest[-1] == len(column.dictionary) - 1
    if complete and (np.diff(highest) <= 1).all():
        return column
    again = column.indices.dictionary_encode()
    return arrow.DictionaryArray.from_arrays(again.indices, column.dictionary.take(again.dictionary))
