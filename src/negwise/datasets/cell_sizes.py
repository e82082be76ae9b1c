"""How much text the cells of an Arrow column have, before each gets its own copy. N cells.

A dictionary or a view can give one long text to a million cells: a kilobyte in a file, and gigabytes as rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.errors import require

Sizes = NDArray[np.int64]


def text_bytes(column: Any) -> Sizes:
    """(N,) Bytes of text in each cell: of a list, of all its texts; 0 in a column without texts."""
    types, kind = require("pyarrow", extra="train").types, column.type
    if types.is_dictionary(kind):
        return _taken(text_bytes(column.dictionary), column.indices)
    if types.is_run_end_encoded(kind):
        runs = np.searchsorted(column.run_ends.to_numpy(), np.arange(len(column)) + column.offset, side="right")
        return text_bytes(column.values)[runs]
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _of_views(column)
    if types.is_list(kind) or types.is_large_list(kind):
        ends = np.cumsum(_filled(column.value_lengths()))
        return np.diff(_until(text_bytes(column.flatten()))[np.append(0, ends)])
    if types.is_list_view(kind) or types.is_large_list_view(kind):  # lists may overlap: flatten() would copy them
        first, until = column.offsets.to_numpy(), _until(text_bytes(column.values))
        return until[first + column.sizes.to_numpy()] - until[first]
    if types.is_map(kind):
        return np.diff(_until(text_bytes(column.keys) + text_bytes(column.items))[column.offsets.to_numpy()])
    if types.is_fixed_size_list(kind):
        until = _until(text_bytes(column.values))
        return np.diff(until[(np.arange(len(column) + 1) + column.offset) * kind.list_size])
    if types.is_struct(kind):
        return np.sum([np.zeros(len(column), np.int64), *map(text_bytes, column.flatten())], axis=0)
    if types.is_union(kind):  # whichever of them a row has
        largest = [text_bytes(column.field(at)).max(initial=0) for at in range(kind.num_fields)]
        return np.full(len(column), max(largest, default=0), np.int64)
    if types.is_fixed_size_binary(kind):
        return np.full(len(column), kind.byte_width)
    if _has_lengths(types, kind):
        return _filled(require("pyarrow.compute", extra="train").binary_length(column))
    return np.zeros(len(column), np.int64)


def may_have_text(column: Any) -> bool:
    """Whether `text_bytes` of ``column`` can be more than 0."""
    types, kind = require("pyarrow", extra="train").types, column.type
    return not (types.is_primitive(kind) or types.is_null(kind) or types.is_decimal(kind))


def parts(sizes: Sizes, most_bytes: int) -> list[slice]:
    """Rows side by side that have at most ``most_bytes`` together, or are a single row."""
    until, found, at = _until(sizes), [], 0
    while at < len(sizes):
        end = max(int(np.searchsorted(until, until[at] + most_bytes, side="right")) - 1, at + 1)
        found.append(slice(at, end))
        at = end
    return found


def _has_lengths(types: Any, kind: Any) -> bool:
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )


def _of_views(column: Any) -> Sizes:
    """A view is 16 bytes, of which the first four are its length."""
    views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)[column.offset : column.offset + len(column), 0]
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), views, 0).astype(np.int64)


def _taken(sizes: Sizes, indices: Any) -> Sizes:
    """The sizes at ``indices``; 0 for a null."""
    places = _filled(indices)
    places[indices.is_null().to_numpy(zero_copy_only=False)] = len(sizes)
    return np.append(sizes, 0)[places]


def _until(sizes: Sizes) -> Sizes:
    """(N + 1,) The sum of the sizes before each place."""
    return np.append(0, np.cumsum(sizes, dtype=np.int64))


def _filled(numbers: Any) -> Sizes:
    return numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
