"""Word vectors made by others: GloVe and word2vec text files, or an array beside its list of words."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from negwise.errors import InputError

FIRST_WORD = 2
"""Words 0 (padding) and 1 (unknown) of a vocabulary are nobody's words."""


@dataclass(frozen=True)
class Vectors:
    """``table`` (n_words, E) float32 for a vocabulary; ``found`` (n_words,) says which rows the file had."""

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
) -> Vectors:
    """The vectors of ``vocabulary`` (word 0 padding, word 1 unknown) from a file, spelled as they are there.

    ``path`` is a text file, one ``word number number ...`` a line (GloVe; the first line of word2vec is skipped),
    plain or ``.gz``; or an array ``.npy`` (rows, E) whose words, one a line, are in ``words``: by default the file
    beside it that ends in ``.words.txt``, ``name.npy`` or ``name.f16.npy`` having ``name.words.txt``. The first
    of equal words counts. Padding is 0; a word that was not found is drawn from a normal distribution with each
    column's mean and standard deviation over the found ones, always the same for one ``seed``.
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(f"{source}: there is no such file of vectors")
    wanted = {word: row for row, word in reversed(list(enumerate(vocabulary))) if row >= FIRST_WORD}
    if source.suffix == ".npy":
        rows, values = _from_array(source, Path(words) if words is not None else _words_beside(source), wanted)
    else:
        rows, values = _from_text(source, wanted)
    if not rows:
        raise InputError(
            f"{source} has none of the {len(wanted):,} words, such as {list(wanted)[-3:]}; are they spelled alike?"
        )
    mean, std = values.mean(0, dtype=np.float64), values.std(0, dtype=np.float64)
    random = np.random.default_rng(seed).standard_normal((len(vocabulary), values.shape[1]))
    table = (mean + std * random).astype(np.float32)
    table[0] = 0
    table[rows] = values
    found = np.zeros(len(vocabulary), dtype=bool)
    found[rows] = True
    return Vectors(table, found, source.name)


def _from_array(source: Path, words: Path, wanted: dict[str, int]) -> tuple[list[int], NDArray[np.float32]]:
    array = np.load(source, mmap_mode="r", allow_pickle=False)
    names = words.read_text(encoding="utf-8").splitlines()
    if array.ndim != 2 or len(array) != len(names):
        raise InputError(f"{source} has shape {array.shape}, but {words} has {len(names)} words, one a line")
    places: dict[int, int] = {}
    for place, name in enumerate(names):
        if name in wanted:
            places.setdefault(wanted[name], place)
    return list(places), np.asarray(array[list(places.values())], dtype=np.float32)


def _words_beside(source: Path) -> Path:
    stem = source.name.removesuffix(".npy")
    tried = [source.with_name(f"{name}.words.txt") for name in (stem, stem.rpartition(".")[0]) if name]
    for path in tried:
        if path.is_file():
            return path
    names = " nor ".join(path.name for path in tried)
    raise InputError(f"{source}: beside it there is no {names}; pass words=PATH, a file with one word a line")


def _from_text(source: Path, wanted: dict[str, int]) -> tuple[list[int], NDArray[np.float32]]:
    found: dict[int, NDArray[np.float32]] = {}
    width = 0
    with _open(source) as file:
        for number, line in _lines(file):
            width = width or line.count(" ")
            word, *numbers = line.rsplit(" ", width)  # from the right: words of some files have spaces
            if word not in wanted or wanted[word] in found:
                continue
            try:
                vector = np.array(numbers, dtype=np.float32)
            except ValueError:
                vector = np.empty(0, np.float32)
            if len(vector) != width or not np.isfinite(vector).all():
                raise InputError(f"{source}, line {number}: expected a word and {width} numbers, got {line[:60]!r}")
            found[wanted[word]] = vector
    return list(found), np.array(list(found.values()), dtype=np.float32)


def _lines(file: TextIO) -> Iterator[tuple[int, str]]:
    """Numbered lines, without the ``rows width`` that word2vec begins with."""
    for number, line in enumerate(file, 1):
        text = line.rstrip(" \r\n")
        if number == 1 and len(text.split()) == 2 and all(part.isdigit() for part in text.split()):
            continue
        if text:
            yield number, text


def _open(source: Path) -> TextIO:
    if source.suffix == ".gz":
        return gzip.open(source, "rt", encoding="utf-8", newline="\n")
    return source.open(encoding="utf-8", newline="\n")
