"""Reads text files in blocks of whole lines, plain or compressed.

The first bytes of a file decide how it is compressed, not its name. One block is in memory at a time: `BLOCK_BYTES`, or
more where a line is longer, up to `MAX_LINE`. So an archive that unpacks to far more than its size costs no memory.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from negwise.errors import InputError, require

MAX_LINE = 2**26
XZ_MEMORY = 2**28
"""Bytes that unpacking xz may take. ``xz -9`` needs 65 MB; a file can ask for gigabytes in its first bytes."""
BLOCK_BYTES = 2**21
"""Large enough for the cost of a block to be that of its bytes, small enough for a cache."""

_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
_PIECE = 2**16
_BOM = b"\xef\xbb\xbf"

BadLine = tuple[int, str]
"""The number of a line, and what is wrong with it."""


class LineBlock(NamedTuple):
    """``data``: whole lines of UTF-8, each with its "\\n" and without "\\r" before it.

    ``numbers`` (L,) are the line numbers, ``bad`` the lines that are no UTF-8 and not in ``data``. ``share`` of the
    file is read after it.
    """

    data: bytes
    numbers: NDArray[np.int64]
    bad: list[BadLine]
    share: float

    def texts(self) -> list[str]:
        """The lines without their ends."""
        return self.data.decode().split("\n")[:-1]


def line_blocks(path: Path, block_bytes: int | None = None) -> Iterator[LineBlock]:
    """The lines of ``path``, block after block. Lines that are not UTF-8 are told of in ``bad``."""
    first = 1
    with open_bytes(path) as (stream, raw, size):
        for data in _whole_lines(path, stream, block_bytes or BLOCK_BYTES):
            if first == 1 and data.startswith(_BOM):
                data = data.removeprefix(_BOM)
            numbers = np.arange(first, first + data.count(b"\n"))
            first += len(numbers)
            if b"\r" in data:
                data = re.sub(rb"\r+\n", b"\n", data)
            bad: list[BadLine] = []
            if not data.isascii():
                data, numbers, bad = _decodable(data, numbers)
            yield LineBlock(data, numbers, bad, raw.tell() / max(size, 1))


def head_lines(path: Path, count: int) -> tuple[list[tuple[int, str]], bool]:
    """(number, text) of up to ``count`` lines from the beginning, and whether some of them are not UTF-8."""
    found: list[tuple[int, str]] = []
    undecodable = False
    for block in line_blocks(path, 2**14):
        found += zip(block.numbers.tolist(), block.texts(), strict=True)
        undecodable |= bool(block.bad)
        if len(found) + len(block.bad) >= count:
            break
    return found[:count], undecodable


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO, int]]:
    """``path`` for reading, with gzip, xz and zstd unpacked; the file itself, which tells the place in it; its size."""
    first = first_bytes(path)
    with path.open("rb") as raw:
        stream: Any = raw
        if first.startswith(_GZIP):
            stream = gzip.GzipFile(fileobj=raw)
        elif first.startswith(_XZ):
            stream = io.BufferedReader(_Xz(raw), _PIECE)
        elif first.startswith(_ZSTD):
            arrow = require("pyarrow", extra="train")
            stream = arrow.CompressedInputStream(arrow.PythonFile(raw, "r"), "zstd")
        yield stream, raw, path.stat().st_size


class _Xz(io.RawIOBase):
    """Unpacks xz, one stream or several, within `XZ_MEMORY`: ``lzma.LZMAFile`` takes no such limit."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw, self._packed = raw, b""
        self._stream = lzma.LZMADecompressor(memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while True:
            if self._stream.eof and not self._next_stream():
                return 0
            if self._stream.needs_input and not self._packed:
                self._packed = self._raw.read(_PIECE)
                if not self._packed:
                    raise EOFError("the file ends before its last stream does")
            data = self._stream.decompress(self._packed, len(target))
            self._packed = b""
            if data:
                target[: len(data)] = data
                return len(data)

    def _next_stream(self) -> bool:
        """Begin the stream that follows the one that has ended, behind zeros; false at the end of the file."""
        rest = self._stream.unused_data.lstrip(b"\0")
        while not rest:
            piece = self._raw.read(_PIECE)
            if not piece:
                return False
            rest = piece.lstrip(b"\0")
        self._stream, self._packed = lzma.LZMADecompressor(memlimit=XZ_MEMORY), rest
        return True


def first_bytes(path: Path) -> bytes:
    """The first 8 bytes of a file, which identify its format."""
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error


def _whole_lines(path: Path, stream: BinaryIO, block_bytes: int) -> Iterator[bytes]:
    """Blocks that end with a line. A line end is added where the last line has none."""
    lines = 0
    parts: list[bytes] = []  # what was read of a block that has no line end yet
    held = 0
    try:
        while piece := stream.read(block_bytes):
            cut = piece.rfind(b"\n") + 1
            if cut:
                block = b"".join([*parts, piece[:cut]])
                if held:  # only the first line of a block can be long
                    _check_line(path, lines + 1, block.index(b"\n"))
                lines += block.count(b"\n")
                yield block
                parts, held = [], 0
            if cut < len(piece):
                parts.append(piece[cut:])
                held += len(piece) - cut
                _check_line(path, lines + 1, held)
    except lzma.LZMAError as error:
        if "memory" not in str(error).lower():
            raise InputError(f"{path}, after line {lines}: reading failed ({error}). Is the file complete?") from error
        raise InputError(
            f"{path}: unpacking takes more than {XZ_MEMORY:,} bytes of memory. Pack it anew: "
            f"xz -dc {path.name} | xz -6 > NEW."
        ) from error
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path}, after line {lines}: reading failed ({error}). Is the file complete?") from error
    if parts:
        yield b"".join(parts) + b"\n"


def _check_line(path: Path, number: int, length: int) -> None:
    if length > MAX_LINE:
        raise InputError(f"{path}, line {number}: longer than {MAX_LINE} bytes. Is this a text file?")


def _decodable(data: bytes, numbers: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64], list[BadLine]]:
    """``data`` without the lines that are not UTF-8."""
    try:
        data.decode()
        return data, numbers, []
    except UnicodeDecodeError:
        pass
    kept, places, bad = io.BytesIO(), [], []
    for number, line in zip(numbers.tolist(), _split(data), strict=True):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            bad.append((number, f"not UTF-8 text (byte 0x{line[error.start]:02x})"))
            continue
        kept.write(line)
        places.append(number)
    return kept.getvalue(), np.array(places, np.int64), bad


def _split(data: bytes) -> list[bytes]:
    """Lines with their ends. Not ``splitlines``, which also breaks at a carriage return."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]]
