"""Text files a line at a time, plain or compressed, and the rows in them that cannot be read.

The first bytes of a file decide how it is compressed, not its name. At most one line is in memory, and a line is at
most `MAX_LINE` bytes. A bad row is an error by default, a reported exception where the caller allows a number of them.
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
"""Bad rows beyond what is allowed, after which nobody would allow them all: a file of another kind."""

MAX_KINDS = 100
"""Kinds of problem that are told apart, so that memory does not grow with the bad rows."""


@dataclass(frozen=True)
class Problem:
    """One bad row: the file, where in it ("line 7", "row 7" of a Parquet file), and what is wrong."""

    file: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}, {self.where}: {self.what}"


@dataclass
class BadRows:
    """Keeps the first ``skip_bad`` bad rows and counts the rest, so that one error says how many there are in all."""

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
        """At the end of reading ``good`` rows: an error where more are bad than were allowed, or none is good."""
        if good == 0 and self.count:
            first = (*self.problems, self._beyond)[0]
            raise InputError(f"{first}. No row is left of {self.count:,}: is this the right file?")
        first = self._beyond
        if first is None:
            return
        before = f" ({self.skip_bad} bad rows were skipped before it)" if self.skip_bad else ""
        what, most = self._kinds.most_common(1)[0]
        kind = f", {most:,} of them: {what}" if most > 1 else ""
        many = f" In all {self.count:,} rows are bad{kind}." if self.count > 1 else ""
        them = "them" if self.count > 1 else "it"
        raise InputError(
            f"{first}{before}.{many} Mend {them}, or leave {them} out: --skip-bad {self.count} "
            f"(in Python: skip_bad={self.count})."
        )


def check_skip_bad(skip_bad: int) -> int:
    if isinstance(skip_bad, bool) or not isinstance(skip_bad, int) or skip_bad < 0:
        raise InputError(f"skip_bad={skip_bad!r}, expected a whole number, 0 or more")
    return skip_bad


def quote(value: object, most: int = 60) -> str:
    """``value`` as a message shows it: quoted, and short."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def read_lines(path: Path, bad_rows: BadRows) -> Iterator[tuple[int, str]]:
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
                    bad_rows.add_row(path, f"line {number}", f"not UTF-8 text (byte 0x{raw[error.start]:02x})")
                    continue
                yield number, text.rstrip("\r\n")
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path}, after line {number}: cannot be read on ({error}). Is the file whole?") from error


def read_delimited(path: Path, bad_rows: BadRows, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row of a CSV or TSV file; quoted cells may hold line ends.

    Every line of a row that cannot be read is a bad row, for a quote that is never closed takes many with it.
    """
    own: list[int] = []  # the lines of the row that is being read

    def feed() -> Iterator[str]:
        for number, text in read_lines(path, bad_rows):
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
                bad_rows.add_row(path, f"line {number}", f"not a row of a delimited file ({error}{span})")
            continue
        finally:
            csv.field_size_limit(before)
        if len(cells) > 1 or (cells and cells[0].strip()):
            yield own[0], cells


def open_bytes(path: Path) -> BinaryIO:
    """The decompressed bytes of ``path``."""
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
    """The first bytes of a file, which say what it is."""
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
