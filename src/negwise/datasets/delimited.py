"""Reads lines that are cut into cells: CSV, TSV, ``1::1193::5::978300760``, ``1 1193`` and the files of MIND.

Arrow cuts the lines. A block that Arrow would cut otherwise than the csv module does (stray quotes, a carriage return
in a line), or that has rows with a wrong number of cells, is cut in Python, which says what is wrong where.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.line_blocks import MAX_LINE, BadLine, LineBlock, line_blocks
from negwise.datasets.row_blocks import RowBlock
from negwise.errors import quote, require

IDS = ("user", "item", "impression")
"""Roles whose cells repeat: they are numbered as they are read."""
_DOUBLE_COLON, _STAND_IN = b"::", b"\x1f"
_QUOTE, _LINE_END = 34, 10
# Tabs and the other ASCII characters at which str.split() breaks, as spaces.
_SPACES = bytes.maketrans(b"\t\x0b\x0c\r\x1c\x1d\x1e\x1f", b" " * 8)


@dataclass(frozen=True)
class Cut:
    """How a line becomes cells: at ``separator`` (None: at white space), into ``width`` of them.

    ``expected`` ends the message about a row that has another number of cells. ``whole_numbers``: the first two cells
    have to be such. ``blank`` lines are skipped, or bad rows. ``quotes``: cells may be in quotes, as in CSV.
    """

    separator: str | None
    width: int
    expected: str
    whole_numbers: bool = False
    blank: bool = True
    quotes: bool = False


def cut_lines(file: Path, cut: Cut, places: Mapping[str, int], block_bytes: int | None = None) -> Iterator[RowBlock]:
    """The rows of a file without quotes. ``places``: the cell of each role."""
    for block in line_blocks(file, block_bytes):
        columns = None if b"\r" in block.data else _cut_by_arrow(_one_separator(block.data, cut), cut, places)
        if columns is None or len(_any(columns)) != len(block.numbers):
            yield _cut_in_python(file, block, cut, places)
        else:
            yield RowBlock(file, columns, block.numbers, block.bad, block.share)


def csv_rows(file: Path, cut: Cut, places: Mapping[str, int]) -> Iterator[RowBlock]:
    """The rows of a CSV or TSV file after its header. Quoted cells may contain line ends.

    In a row that cannot be read, each line counts as a bad row: a quote that is never closed swallows many lines.
    """
    assert cut.separator is not None
    blocks = _after_header(line_blocks(file))
    rest: LineBlock | None = None  # lines of a row that ends in the next block
    for block in blocks:
        block = block if rest is None else _joined(rest, block)
        found = _at_row_end(block, cut.separator.encode())
        if found is None:
            yield _cut_by_csv_module(file, block, blocks, cut, places)
            rest = None
            continue
        whole, numbers, rest = found
        columns = _cut_by_arrow(whole.data, cut, places)
        if columns is None or len(_any(columns)) != len(numbers):
            yield _cut_by_csv_module(file, whole, iter(()), cut, places)
        else:
            yield RowBlock(file, columns, numbers, whole.bad, whole.share)
    if rest is not None:
        yield _cut_by_csv_module(file, rest, iter(()), cut, places)


def _cut_by_arrow(data: bytes, cut: Cut, places: Mapping[str, int]) -> dict[str, Any] | None:
    """Columns by role; None if a line has another number of cells, or a cell that has to be a whole number is none."""
    arrow, reader = require("pyarrow", extra="train"), require("pyarrow.csv", extra="train")
    if not data:
        return None
    separator = {None: " ", "::": _STAND_IN.decode()}.get(cut.separator, cut.separator)
    ids = arrow.dictionary(arrow.int32(), arrow.string())
    types = {str(at): arrow.string() for at in places.values()}
    types |= {str(at): ids for role, at in places.items() if role in IDS}
    has_quotes = cut.quotes and b'"' in data
    try:
        table = reader.read_csv(
            arrow.BufferReader(data),
            reader.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=[str(at) for at in range(cut.width)]
            ),
            reader.ParseOptions(
                delimiter=separator,
                quote_char='"' if has_quotes else False,
                newlines_in_values=has_quotes,
            ),
            reader.ConvertOptions(
                check_utf8=False,
                column_types=types,
                include_columns=list(types),
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except arrow.ArrowInvalid:
        return None
    columns = {role: table[str(at)].combine_chunks() for role, at in places.items()}
    columns = {role: _one_chunk(arrow, column) for role, column in columns.items()}
    if cut.whole_numbers:
        decimal = require("pyarrow.compute", extra="train").utf8_is_decimal
        for role in ("user", "item"):
            if not all(decimal(columns[role].dictionary).to_pylist()):
                return None
    return columns


def _one_chunk(arrow: Any, column: Any) -> Any:
    """``column`` as one array: combine_chunks gives a chunked one where there are no rows."""
    if isinstance(column, arrow.ChunkedArray):
        return column.chunk(0) if column.num_chunks else arrow.array([], column.type)
    return column


def _one_separator(data: bytes, cut: Cut) -> bytes:
    """``data`` with a single byte between cells."""
    if cut.separator == "::":
        return data.replace(_DOUBLE_COLON, _STAND_IN)
    if cut.separator is not None:
        return data
    if not data.isascii():
        return b"".join(" ".join(line.split()).encode() + b"\n" for line in data.decode().split("\n")[:-1])
    data = data.translate(_SPACES)
    if b"  " in data or b" \n" in data or b"\n " in data or data.startswith(b" "):
        data = b"".join(b" ".join(line.split()) + b"\n" for line in data.split(b"\n")[:-1])
    return data


def _cut_in_python(file: Path, block: LineBlock, cut: Cut, places: Mapping[str, int]) -> RowBlock:
    rows, numbers, bad = [], [], list(block.bad)
    for number, text in zip(block.numbers.tolist(), block.texts(), strict=True):
        if cut.blank and not text.strip():
            continue
        cells = text.split(cut.separator)
        good = len(cells) == cut.width
        if good and cut.whole_numbers:
            good = cells[0].isdecimal() and cells[1].isdecimal()
        if good:
            rows.append(cells)
            numbers.append(number)
        else:
            came = quote(text) if cut.whole_numbers else f"{len(cells)} cells"
            bad.append((number, f"{came}, {cut.expected}"))
    return _row_block(file, rows, numbers, bad, block.share, places)


def _cut_by_csv_module(
    file: Path, block: LineBlock, following: Iterator[LineBlock], cut: Cut, places: Mapping[str, int]
) -> RowBlock:
    """``block`` by Python's csv module, with lines of ``following`` blocks where its last row goes on into them."""
    rows, numbers, bad = [], [], list(block.bad)
    own: list[int] = []  # line numbers of the current row
    waiting = [*zip(block.numbers.tolist(), block.texts(), strict=True)][::-1]
    share = block.share

    def feed() -> Iterator[str]:
        nonlocal share
        while True:
            if not waiting:
                more = next(following, None)
                if more is None:
                    return
                bad.extend(more.bad)
                waiting.extend([*zip(more.numbers.tolist(), more.texts(), strict=True)][::-1])
                share = more.share
                continue
            number, text = waiting.pop()
            own.append(number)
            yield text + "\n"

    reader = csv.reader(feed(), delimiter=cut.separator or ",", strict=True)
    # The csv module limits a cell to 128 KB, and a text may be longer; `MAX_LINE` bounds it. The limit is global to the
    # process, so it is raised for this block only.
    before = csv.field_size_limit(MAX_LINE)
    try:
        while waiting:
            own.clear()
            try:
                cells = next(reader, None)
            except csv.Error as error:
                span = f"; the row began in line {own[0]}: is a quote not closed?" if len(own) > 1 else ""
                bad += [(number, f"not a row of a delimited file ({error}{span})") for number in own]
                continue
            if cells is None or not (len(cells) > 1 or (cells and cells[0].strip())):
                continue
            if len(cells) == cut.width:
                rows.append(cells)
                numbers.append(own[0])
            else:
                bad.append((own[0], f"{len(cells)} cells, {cut.expected}"))
    finally:
        csv.field_size_limit(before)
    return _row_block(file, rows, numbers, bad, share, places)


def _row_block(
    file: Path, rows: list[list[str]], numbers: list[int], bad: list[BadLine], share: float, places: Mapping[str, int]
) -> RowBlock:
    arrow = require("pyarrow", extra="train")
    columns = {role: arrow.array([row[at] for row in rows], arrow.string()) for role, at in places.items()}
    return RowBlock(file, columns, np.array(numbers, np.int64), bad, share)


def _after_header(blocks: Iterable[LineBlock]) -> Iterator[LineBlock]:
    """``blocks`` without the first line that is not blank, and what is before it."""
    found = False
    for block in blocks:
        at = 0
        lines = 0
        while not found and at < len(block.data):
            end = block.data.index(b"\n", at) + 1
            found = bool(block.data[at:end].decode().strip())
            at, lines = end, lines + 1
        yield LineBlock(block.data[at:], block.numbers[lines:], block.bad, block.share)


def _at_row_end(block: LineBlock, separator: bytes) -> tuple[LineBlock, NDArray[np.int64], LineBlock | None] | None:
    """The whole rows of ``block``, the first line of each but for blank lines, and the lines of a row that goes on.

    None if a quote is neither at the edge of a cell nor doubled within a quoted one: then only the csv module can tell
    where rows end.
    """
    data, numbers = block.data, block.numbers
    if b"\r" in data:
        return None
    has_quotes = b'"' in data
    if not has_quotes and b"\n\n" not in data and not data.startswith(b"\n"):
        return block, numbers, None
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == _LINE_END)
    row_ends = np.arange(len(ends))  # lines that end a row
    if has_quotes:
        quotes = np.flatnonzero(text == _QUOTE)
        edges = np.frombuffer(separator + b'\n"', np.uint8)
        # Opening quotes are those at even places: within a quoted cell a doubled quote closes it and opens it again.
        opening, closing = quotes[::2], quotes[1::2]
        if not (np.isin(text[opening[opening > 0] - 1], edges).all() and np.isin(text[closing + 1], edges).all()):
            return None
        row_ends = np.flatnonzero(np.searchsorted(quotes, ends) % 2 == 0)
    lines = int(row_ends[-1]) + 1 if len(row_ends) else 0
    if lines < len(ends) and len(data) > MAX_LINE:
        return None
    first = np.append(0, row_ends + 1)[:-1]
    starts = np.append(0, ends + 1)[first]
    first = first[starts < ends[first]]
    at = int(ends[lines - 1]) + 1 if lines else 0
    rest = LineBlock(data[at:], numbers[lines:], [], block.share) if lines < len(ends) else None
    return LineBlock(data[:at], numbers[:lines], block.bad, block.share), numbers[first], rest


def _joined(first: LineBlock, second: LineBlock) -> LineBlock:
    return LineBlock(
        first.data + second.data,
        np.concatenate((first.numbers, second.numbers)),
        first.bad + second.bad,
        second.share,
    )


def _any(columns: Mapping[str, Any]) -> Any:
    return next(iter(columns.values()))
