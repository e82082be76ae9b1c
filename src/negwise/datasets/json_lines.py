"""Reads JSON lines: one object a line.

Arrow parses a block if its cells have the types of its first row. A block with other cells, with keys that only some
rows have, or with a line that is no JSON object, is parsed line by line in Python, which says what is wrong where.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from negwise.datasets.delimited import IDS
from negwise.datasets.line_blocks import LineBlock, line_blocks
from negwise.datasets.row_blocks import RowBlock
from negwise.datasets.table_columns import ROLES, matching_names, numbered_negatives
from negwise.errors import quote, require

MAX_BRACKETS = 64
"""A line with more opening brackets than this is parsed in Python, whose parser has a limit for nesting."""

Roles = Mapping[str, set[str]]
"""Role -> the names that mean it."""


def json_rows(file: Path, kind: str, chosen: Mapping[str, str], elsewhere: Collection[str] = ()) -> Iterator[RowBlock]:
    """Cells by role. Rows may lack optional roles, which are looked up in each; those of ``elsewhere`` are not."""
    optional = {role: names for role, names in ROLES[kind].items() if role not in chosen and role not in elsewhere}
    for block in line_blocks(file):
        columns = _parse_by_arrow(block, kind, chosen, optional)
        if columns is None:
            yield _parse_in_python(file, block, kind, chosen, optional)
        else:
            yield RowBlock(file, columns, block.numbers, block.bad, block.share)


def _parse_by_arrow(block: LineBlock, kind: str, chosen: Mapping[str, str], optional: Roles) -> dict[str, Any] | None:
    arrow, reader = require("pyarrow", extra="train"), require("pyarrow.json", extra="train")
    n = len(block.numbers)
    # Arrow reads objects, not lines: each line has to begin one, and there have to be as many.
    if not block.data.startswith(b"{") or block.data.count(b"\n{") != n - 1 or _has_deep_lines(block):
        return None
    first = _object(block.data[: block.data.index(b"\n")].decode())
    if first is None:
        return None
    types = {name: _arrow_type(arrow, role, first.get(name)) for role, name in chosen.items()}
    if None in types.values():
        return None
    try:
        table = reader.read_json(
            arrow.BufferReader(block.data),
            reader.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
            reader.ParseOptions(explicit_schema=arrow.schema(list(types.items()))),
        )
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        return None
    if table.num_rows != n or _more_roles(table.column_names, kind, chosen, optional):
        return None
    return {role: arrow.concat_arrays(table[name].chunks) for role, name in chosen.items()}


def _arrow_type(arrow: Any, role: str, value: Any) -> Any:
    """The type of a column that begins with ``value``; None where only Python can tell."""
    if isinstance(value, str):
        return arrow.string()
    if isinstance(value, float) and role not in IDS:  # among ids a float would swallow the digits of large numbers
        return arrow.float64()
    if isinstance(value, int) and not isinstance(value, bool):
        return arrow.int64()
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return arrow.list_(arrow.string())
    return None


def _more_roles(names: list[str], kind: str, chosen: Mapping[str, str], optional: Roles) -> bool:
    """Whether there are columns for roles that were not chosen from the first rows, or two for one role."""
    unused = [name for name in names if name not in chosen.values()]
    if kind == "pairs" and numbered_negatives(unused):
        return True
    return any(matching_names(unused, known) for known in optional.values())


def _has_deep_lines(block: LineBlock) -> bool:
    text = np.frombuffer(block.data, np.uint8)
    opening = (text == ord("[")) | (text == ord("{"))
    if not opening.any():
        return False
    starts = np.append(0, np.flatnonzero(text == ord("\n"))[:-1] + 1)
    return bool(np.add.reduceat(opening.astype(np.int32), starts).max() > MAX_BRACKETS)


def _object(text: str) -> dict[str, Any] | None:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _parse_in_python(file: Path, block: LineBlock, kind: str, chosen: Mapping[str, str], optional: Roles) -> RowBlock:
    rows: list[dict[str, Any]] = []
    numbers, bad = [], list(block.bad)
    for number, text in zip(block.numbers.tolist(), block.texts(), strict=True):
        if not text.strip():
            continue
        cells = _cells(text, kind, chosen, optional)
        if isinstance(cells, str):
            bad.append((number, cells))
        else:
            rows.append(cells)
            numbers.append(number)
    roles = dict.fromkeys([*chosen, *(role for row in rows for role in row)])
    columns = {role: [row.get(role) for row in rows] for role in roles}
    return RowBlock(file, columns, np.array(numbers, np.int64), bad, block.share)


def _cells(text: str, kind: str, chosen: Mapping[str, str], optional: Roles) -> dict[str, Any] | str:
    """The cells of a line by role, or what is wrong with it."""
    try:
        row = json.loads(text)
        whole = "\\u" not in text or is_unicode(row)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error})"
    if not isinstance(row, dict):
        return f"{quote(row)}, expected an object"
    if not whole:
        return "half of a surrogate pair (an escape such as \\ud800), which is not valid text"
    further = {role: names for role, known in optional.items() if (names := matching_names(row, known))}
    if further and kind != "pairs":
        role, (name, *_) = next(iter(further.items()))
        return f"{name} as the {role}, which the first rows lack; expected it in all rows or in none"
    twice = next((names for names in further.values() if len(names) > 1), None)
    if twice is not None:
        return f"both {' and '.join(twice)}, expected one of them"
    cells = {role: row.get(name) for role, name in chosen.items()}
    if kind == "pairs":
        cells |= {role: row[name] for role, name in numbered_negatives(row).items()}
    return cells | {role: row[name] for role, (name,) in further.items()}


def is_unicode(value: Any) -> bool:
    """Whether UTF-8 can encode every text in ``value``. JSON escapes can also spell half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
