"""Text files a line at a time, plain or compressed; the first bytes decide which, not the name.

At most one line is in memory, and a line is at most `MAX_LINE` bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from negwise.datasets.problems import Tolerance
from negwise.errors import InputError, require

MAX_LINE = 2**26
PARQUET = b"PAR1"
_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"


def magic(path: Path) -> bytes:
    """The first bytes of a file, which say what it is."""
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error


def open_bytes(path: Path) -> BinaryIO:
    """The decompressed bytes of ``path``."""
    first = magic(path)
    if first.startswith(_GZIP):
        return io.BufferedReader(cast(io.RawIOBase, gzip.open(path, "rb")))
    if first.startswith(_XZ):
        return io.BufferedReader(cast(io.RawIOBase, lzma.open(path, "rb")))
    if first.startswith(_ZSTD):
        arrow = require("pyarrow", extra="train")
        return io.BufferedReader(arrow.input_stream(str(path), compression="zstd"))
    return path.open("rb")


def lines(path: Path, tolerance: Tolerance) -> Iterator[tuple[int, str]]:
    """(number from 1, text without its line end) of each line that is UTF-8."""
    number = 0
    try:
        with open_bytes(path) as stream:
            while raw := stream.readline(MAX_LINE + 1):
                number += 1
                if len(raw) > MAX_LINE:
                    raise InputError(f"{path}, line {number}: longer than {MAX_LINE} bytes. Is this a text file?")
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    tolerance.bad(path, f"line {number}", f"not UTF-8 text (byte 0x{raw[error.start]:02x})")
                    continue
                yield number, text.rstrip("\r\n")
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path}, after line {number}: cannot be read on ({error}). Is the file whole?") from error


def delimited(path: Path, tolerance: Tolerance, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row of a CSV or TSV file; quoted cells may hold line ends.

    Every line of a row that cannot be read is a bad row, for a quote that is never closed takes many with it.
    """
    own: list[int] = []  # the lines of the row that is being read

    def feed() -> Iterator[str]:
        for number, text in lines(path, tolerance):
            own.append(number)
            yield text + "\n"

    rows = csv.reader(feed(), delimiter=delimiter, strict=True)
    while True:
        own.clear()
        # csv's limit on a cell is 128 KB; a body of text may be longer, and a line is bounded above. The limit is the
        # whole process's, so it is ours for this row alone.
        before = csv.field_size_limit(MAX_LINE)
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            span = f"; the row began in line {own[0]}: is a quote left open?" if len(own) > 1 else ""
            for number in own:
                tolerance.bad(path, f"line {number}", f"not a row of a delimited file ({error}{span})")
            continue
        finally:
            csv.field_size_limit(before)
        if len(cells) > 1 or (cells and cells[0].strip()):
            yield own[0], cells
