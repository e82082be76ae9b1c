"""Flat arrays in files, written block by block and opened as memory maps: large data that is not held in memory.

Pages of a map count as memory of the process once they were touched; `let_go` gives them back.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.ragged import Ragged, offsets_of
from negwise.errors import InputError


class ArrayWriter:
    """Writes each array to a file of its own, block by block::

    with ArrayWriter(folder) as arrays:
        arrays.write("times", block)
        arrays.write_lists("shown", lists)

    ``kinds`` has the type and the length of each, which `open_arrays` takes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = ExitStack()
        self._streams: dict[str, BinaryIO] = {}
        self.kinds: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def write(self, name: str, block: NDArray[Any]) -> None:
        """Append ``block`` to the array ``name``, whose type is that of its first block."""
        if name not in self._streams:
            self._streams[name] = self._open.enter_context(_file(self._folder, name).open("wb"))
            self.kinds[name] = block.dtype.str, 0
        kind, length = self.kinds[name]
        self._streams[name].write(np.ascontiguousarray(block.astype(kind, casting="safe", copy=False)).data)
        self.kinds[name] = kind, length + len(block)

    def write_lists(self, name: str, lists: Ragged) -> None:
        """Append rows to the lists ``name``, which `open_lists` opens."""
        before = self.kinds.get(f"{name}.ids", ("", 0))[1]
        if f"{name}.offsets" not in self.kinds:
            self.write(f"{name}.offsets", offsets_of(np.zeros(0, np.int64)))
        self.write(f"{name}.ids", lists.ids)
        self.write(f"{name}.offsets", lists.offsets[1:] + before)


def open_arrays(folder: Path, kinds: Mapping[str, tuple[str, int]]) -> dict[str, NDArray[Any]]:
    """The arrays of ``folder`` by name, as private memory maps, to be read. What is written is lost with `let_go`."""
    return {name: _map(_file(folder, name), np.dtype(kind), length) for name, (kind, length) in kinds.items()}


def open_lists(arrays: Mapping[str, NDArray[Any]], name: str) -> Ragged:
    """The lists ``name`` of `ArrayWriter.write_lists`."""
    return Ragged(arrays[f"{name}.offsets"], arrays[f"{name}.ids"])


def let_go(*arrays: NDArray[Any]) -> None:
    """Give back the pages of memory maps, which are read again when needed. Other arrays stay as they are."""
    for array in arrays:
        base: Any = array
        while isinstance(base, np.ndarray):
            base = base.base
        base = base.obj if isinstance(base, memoryview) else base
        if isinstance(base, mmap.mmap) and hasattr(base, "madvise"):  # Windows has none
            base.madvise(mmap.MADV_DONTNEED)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.array"


def _map(file: Path, kind: np.dtype[Any], length: int) -> NDArray[Any]:
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            if size != length * kind.itemsize:
                raise InputError(
                    f"{file}: the cache is damaged ({size} bytes, expected {length * kind.itemsize}). "
                    "Delete its folder; it will be rebuilt."
                )
            if not size:  # cannot be mapped
                return np.zeros(0, kind)
            return np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY), kind)
    except OSError as error:
        raise InputError(
            f"{file}: the cache is damaged ({error.strerror or error}). Delete its folder; it will be rebuilt."
        ) from error
