"""Pretrained word vectors: GloVe and word2vec text files, or an array with a separate list of words."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from negwise.errors import InputError

FIRST_WORD = 2
"""Entries 0 (padding) and 1 (unknown) of a vocabulary are not words."""


@dataclass(frozen=True)
class WordVectors:
    """``table`` (n_words, E) float32 for a vocabulary. ``found`` (n_words,) is true for words of the file."""

    table: NDArray[np.float32]
    found: NDArray[np.bool_]
    source: str

    def __str__(self) -> str:
        words = max(len(self.found) - FIRST_WORD, 0)
        hits = int(self.found.sum())
        return f"{hits:,} of {words:,} words ({hits / max(words, 1):.1%}) found in {self.source}, width {self.width}"

    @property
    def width(self) -> int:
        return self.table.shape[1]


def load_vectors(
    path: str | os.PathLike[str],
    vocabulary: Sequence[str],
    *,
    words: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> WordVectors:
    """Vectors of ``vocabulary`` (word 0 padding, word 1 unknown) from a file. Words must match its spelling exactly.

    ``path`` is a text file, plain or ``.gz``, with lines ``word number number ...`` (GloVe), optionally after a first
    line ``rows width`` (word2vec, fastText). Or it is an array ``.npy`` (rows, E), whose words are in the file
    ``words``, one a line: by default ``name.words.txt`` in the same folder as ``name.npy`` or ``name.f16.npy``. If a
    word comes twice, its first row counts. Padding is 0. A word that is not in the file is drawn from a normal
    distribution with each column's mean and standard deviation over the found words; ``seed`` fixes the draw.
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(f"{source}: no such file of word vectors")
    if words is not None and source.suffix != ".npy":
        raise InputError(f"words={str(words)!r} goes with an array .npy; {source} holds its own words: leave words out")
    wanted = _row_of_each_word(vocabulary)
    if source.suffix == ".npy":
        rows, values = _from_array(source, Path(words) if words is not None else _words_beside(source), wanted)
    else:
        rows, values = _from_text(source, wanted)
    if not rows:
        raise InputError(
            f"{source} has none of the {len(wanted):,} words, such as {list(wanted)[:3]}. Check that the spelling is "
            "the same, and that single spaces separate the numbers of a line"
        )
    mean, std = values.mean(0, dtype=np.float64), values.std(0, dtype=np.float64)
    random = np.random.default_rng(seed).standard_normal((len(vocabulary), values.shape[1]))
    table = (mean + std * random).astype(np.float32)
    table[0] = 0
    table[rows] = values
    found = np.zeros(len(vocabulary), dtype=bool)
    found[rows] = True
    return WordVectors(table, found, source.name)


def _row_of_each_word(vocabulary: Sequence[str]) -> dict[str, int]:
    """Maps each word to its row."""
    wanted: dict[str, int] = {}
    for row, word in enumerate(vocabulary[FIRST_WORD:], FIRST_WORD):
        if wanted.setdefault(word, row) != row:
            raise InputError(f"the vocabulary has {word!r} as word {wanted[word]} and as word {row}, expected it once")
    return wanted


def _from_array(source: Path, words: Path, wanted: dict[str, int]) -> tuple[list[int], NDArray[np.float32]]:
    try:
        array = np.load(source, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{source} is not an array of numbers; write one with numpy.save") from error
    if not words.is_file():
        raise InputError(f"{words}: no such file of words")
    # Not `splitlines`: it also splits at characters that occur inside words.
    names = words.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if array.ndim != 2 or array.dtype.kind not in "fiu" or len(array) != len(names):
        came = f"{array.dtype} of shape {array.shape}"
        raise InputError(f"{source} is {came}, expected numbers, one row for each of the {len(names)} words in {words}")
    array_rows: dict[int, int] = {}
    for array_row, name in enumerate(names):
        if name in wanted:
            array_rows.setdefault(wanted[name], array_row)
    values = np.asarray(array[list(array_rows.values())], dtype=np.float32)
    broken = np.flatnonzero(~np.isfinite(values).all(1))
    if len(broken):
        array_row = list(array_rows.values())[broken[0]]
        raise InputError(f"{source}, row {array_row} ({names[array_row]!r}): expected finite numbers")
    return list(array_rows), values


def _words_beside(source: Path) -> Path:
    stem = source.name.removesuffix(".npy")
    tried = [source.with_name(f"{name}.words.txt") for name in (stem, stem.rpartition(".")[0]) if name]
    for path in tried:
        if path.is_file():
            return path
    names = " nor ".join(path.name for path in tried)
    raise InputError(f"{source}: its folder has no {names}; pass words=PATH, a file with one word a line")


def _from_text(source: Path, wanted: dict[str, int]) -> tuple[list[int], NDArray[np.float32]]:
    found: dict[int, NDArray[np.float32]] = {}
    try:
        with _open(source) as file:
            for number, line, width in _lines(source, file):
                word, *numbers = line.rsplit(" ", width)  # from the right: in some files words contain spaces
                if word not in wanted and not _has_numbers_left(word, wanted):
                    continue
                vector = _vector(numbers)
                if word not in wanted or vector is None or len(vector) != width:
                    raise InputError(f"{source}, line {number}: expected a word and {width} numbers, got {line[:60]!r}")
                found.setdefault(wanted[word], vector)
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{source}: expected lines of UTF-8 text, plain or in a complete .gz, got: {error}. "
            "Unpack other archives first; save word2vec vectors as text"
        ) from error
    return list(found), np.array(list(found.values()), dtype=np.float32)


def _has_numbers_left(word: str, wanted: dict[str, int]) -> bool:
    """Whether the line is too long: a wanted word followed by numbers."""
    first, *more = word.split(" ")
    return bool(more) and first in wanted and _vector(more) is not None


def _vector(numbers: list[str]) -> NDArray[np.float32] | None:
    try:
        vector = np.array(numbers, dtype=np.float32)
    except ValueError:
        return None
    return vector if np.isfinite(vector).all() else None


def _lines(source: Path, file: TextIO) -> Iterator[tuple[int, str, int]]:
    """(line number, text, expected count of numbers) of each line, without word2vec's first line ``rows width``."""
    promised = width = rows = 0
    for number, line in enumerate(file, 1):
        text = line.rstrip(" \r\n")
        if number == 1 and len(text.split()) == 2 and all(part.isdecimal() for part in text.split()):
            promised, width = map(int, text.split())
        elif text:
            rows, width = rows + 1, width or text.count(" ")
            yield number, text, width
    if promised and rows != promised:
        raise InputError(
            f"{source} has {rows:,} rows, but its first line says {promised:,}: "
            "is the file complete? If it is, correct its first line"
        )


def _open(source: Path) -> TextIO:
    if source.suffix == ".gz":
        return gzip.open(source, "rt", encoding="utf-8-sig", newline="\n")
    return source.open(encoding="utf-8-sig", newline="\n")
