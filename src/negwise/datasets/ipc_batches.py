"""What compressed record batches of an Arrow file unpack to, from their headers: nothing is unpacked to find out.

The headers are flatbuffers, of which pyarrow shows nothing; the format is that of Arrow's documentation (Columnar
Format, "IPC File Format"). A file is its magic, and then the same messages as a stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

MAGIC_BYTES = 8
"""A file begins with ``ARROW1`` and two zeros."""
_CONTINUATION = b"\xff\xff\xff\xff"
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3


def unpacked_sizes(raw: BinaryIO, start: int) -> Iterator[int]:
    """The bytes that each batch takes once it is unpacked, in the order of the file; of batches that are compressed."""
    raw.seek(start)
    while (prefix := raw.read(8))[:4] == _CONTINUATION and len(prefix) == 8:
        (length,) = struct.unpack("<i", prefix[4:])
        if length <= 0:
            return
        header = _Table.root(raw.read(length))
        body, body_bytes = raw.tell(), header.number(3, "<q")
        kind, batch = header.number(1, "<B"), header.table(2)
        if kind == _DICTIONARY_BATCH and batch is not None:
            batch = batch.table(1)
        if kind in (_DICTIONARY_BATCH, _RECORD_BATCH) and batch is not None and batch.table(3) is not None:
            yield sum(_unpacked(raw, body + offset, size) for offset, size in batch.pairs(2))
        raw.seek(body + max(body_bytes, 0))


def _unpacked(raw: BinaryIO, at: int, size: int) -> int:
    """A compressed buffer begins with its size once unpacked, or with -1 where it is not compressed."""
    if size < 8:
        return size
    raw.seek(at)
    (found,) = struct.unpack("<q", raw.read(8))
    return int(found) if found >= 0 else size - 8


class _Table:
    """A table of a flatbuffer: fields by number, each at the place that its vtable has for it."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - self._read("<i", at)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, struct.unpack_from("<I", data)[0])

    def number(self, field: int, form: str) -> int:
        at = self._place(field)
        return 0 if at is None else self._read(form, at)

    def table(self, field: int) -> _Table | None:
        at = self._place(field)
        return None if at is None else _Table(self._data, at + self._read("<I", at))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two 64-bit numbers."""
        at = self._place(field)
        if at is not None:
            at += self._read("<I", at)
            yield from struct.iter_unpack("<qq", self._data[at + 4 : at + 4 + 16 * self._read("<I", at)])

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry >= self._read("<H", self._vtable):
            return None
        offset = self._read("<H", self._vtable + entry)
        return self._at + offset if offset else None

    def _read(self, form: str, at: int) -> int:
        return int(struct.unpack_from(form, self._data, at)[0])
