"""Reads text files line by line, plain or compressed, and collects rows that cannot be read.

The first bytes of a file decide how it is compressed, not its name. At most one line is in memory, and a line has at
most `MAX_LINE` bytes. A bad row is an error by default. With ``skip_bad`` it is skipped and reported.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from negwise.errors import InputError, require

MAX_LINE = 2**26
PARQUET_MAGIC = b"PAR1"
_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"

MAX_EXCESS = 100_000
"""Reading stops at this many bad rows beyond ``skip_bad``: the file must be of another kind."""

MAX_KINDS = 100
"""Most distinct problems that are counted, so that memory does not grow with the bad rows."""


@dataclass(frozen=True)
class Problem:
    """One bad row: the file, the place in it ("line 7", in a Parquet file "row 7"), and what is wrong."""

    file: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}, {self.where}: {self.what}"


@dataclass
class BadRows:
    """Collects the first ``skip_bad`` bad rows and counts the rest, so that one error can give the total."""

    skip_bad: int = 0
    problems: list[Problem] = field(default_factory=list)
    count: int = 0
    _beyond: Problem | None = None
    _kinds: Counter[str] = field(default_factory=Counter)

    def add_row(self, file: Path, where: str, what: str) -> None:
        self.add_problem(Problem(str(file), where, what))

    def add_problem(self, problem: Problem) -> None:
        self.count += 1
        if len(self.problems) < self.skip_bad:
            self.problems.append(problem)
        elif self._beyond is None:
            self._beyond = problem
        if problem.what in self._kinds or len(self._kinds) < MAX_KINDS:
            self._kinds[problem.what] += 1
        if self.count - self.skip_bad > MAX_EXCESS:
            raise InputError(f"{self._beyond}. More than {self.count - 1:,} rows are bad: is this the right file?")

    def check_limit(self, good: int) -> None:
        """After reading ``good`` rows: raise if more than ``skip_bad`` rows are bad, or if no row is good."""
        if good == 0 and self.count:
            first = (*self.problems, self._beyond)[0]
            raise InputError(f"{first}. None of {self.count:,} rows could be read: is this the right file?")
        first = self._beyond
        if first is None:
            return
        before = f" ({self.skip_bad} bad rows were skipped before it)" if self.skip_bad else ""
        what, most = self._kinds.most_common(1)[0]
        kind = f", {most:,} of them: {what}" if most > 1 else ""
        many = f" In all {self.count:,} rows are bad{kind}." if self.count > 1 else ""
        them = "them" if self.count > 1 else "it"
        raise InputError(
            f"{first}{before}.{many} Correct {them}, or skip {them}: --skip-bad {self.count} "
            f"(in Python: skip_bad={self.count})."
        )


def check_skip_bad(skip_bad: int) -> int:
    if isinstance(skip_bad, bool) or not isinstance(skip_bad, int) or skip_bad < 0:
        raise InputError(f"skip_bad={skip_bad!r}, expected a whole number, 0 or more")
    return skip_bad


def read_lines(path: Path, bad_rows: BadRows) -> Iterator[tuple[int, str]]:
    """(line number from 1, text without its line end) of each UTF-8 line. Other lines are bad rows."""
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
                    bad_rows.add_row(path, f"line {number}", f"not UTF-8 text (byte 0x{raw[error.start]:02x})")
                    continue
                yield number, text.rstrip("\r\n")
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path}, after line {number}: reading failed ({error}). Is the file complete?") from error


def read_delimited(path: Path, bad_rows: BadRows, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, cells) of each row of a CSV or TSV file. Quoted cells may contain line ends.

    In a row that cannot be read, each line counts as a bad row: a quote that is never closed swallows many lines.
    """
    own: list[int] = []  # line numbers of the current row

    def feed() -> Iterator[str]:
        for number, text in read_lines(path, bad_rows):
            own.append(number)
            yield text + "\n"

    rows = csv.reader(feed(), delimiter=delimiter, strict=True)
    while True:
        own.clear()
        # The csv module limits a cell to 128 KB, and a text may be longer; `MAX_LINE` bounds it. The limit is global to
        # the process, so it is raised for this row only.
        before = csv.field_size_limit(MAX_LINE)
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            span = f"; the row began in line {own[0]}: is a quote not closed?" if len(own) > 1 else ""
            for number in own:
                bad_rows.add_row(path, f"line {number}", f"not a row of a delimited file ({error}{span})")
            continue
        finally:
            csv.field_size_limit(before)
        if len(cells) > 1 or (cells and cells[0].strip()):
            yield own[0], cells


def open_bytes(path: Path) -> BinaryIO:
    """Opens ``path`` for reading; decompresses gzip, xz and zstd."""
    first = first_bytes(path)
    if first.startswith(_GZIP):
        return io.BufferedReader(cast(io.RawIOBase, gzip.open(path, "rb")))
    if first.startswith(_XZ):
        return io.BufferedReader(cast(io.RawIOBase, lzma.open(path, "rb")))
    if first.startswith(_ZSTD):
        arrow = require("pyarrow", extra="train")
        return io.BufferedReader(arrow.input_stream(str(path), compression="zstd"))
    return path.open("rb")


def first_bytes(path: Path) -> bytes:
    """The first 8 bytes of a file, which identify its format."""
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
