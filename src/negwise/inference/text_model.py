"""A model of texts, ready to be used: vectors, scores, search, and negatives for the next run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.errors import InputError
from negwise.inference import mining
from negwise.inference.best_candidates import NOBODY, TopN, check_n, merge, top_n
from negwise.inference.encoding import BATCH, Floats, batches, encoded, joined, length_of, no_such, resolve, tokens_of
from negwise.inference.export_folder import export_model
from negwise.inference.given_values import several
from negwise.inference.model_folder import ModelFolder
from negwise.inference.progress import Progress, shown
from negwise.models import WordTokenizer
from negwise.records import ModelRecord, Outcome

SIDES = {"left": "title", "right": "body"}
"""The two sides of a pair, and whose number of words each is cut to."""


@dataclass(frozen=True, eq=False)
class TextModel:
    """A model that was trained on text pairs. The score of a left and a right text is the product of their vectors.

    A left text asks (a query, a question, a title), a right text is found (an answer, a body). Vectors of right texts
    have length 1 unless the model was trained with ``temperature=None``; those of left texts have length
    1 / temperature. A text without a known word is the zero vector, or close to it.
    """

    home: ModelFolder
    network: Any
    tokenizer: WordTokenizer

    def __repr__(self) -> str:
        return f"TextModel({self.record.model}, {len(self.tokenizer):,} words, width {self.width}, {self.home.path})"

    def __getattr__(self, name: str) -> Any:
        return no_such(self, name, "a model of texts", "encode, score, search, mine and export")

    @property
    def record(self) -> ModelRecord:
        """What the model is: name, settings, metric, K, provenance."""
        return self.home.record

    @property
    def outcome(self) -> Outcome:
        """What its run came to."""
        return self.home.outcome

    @property
    def width(self) -> int:
        """D, the length of a vector."""
        return int(self.network.encoder.pooling.inner.in_features)

    def encode(
        self,
        texts: Iterable[str],
        *,
        side: str = "right",
        batch_size: int = BATCH,
        device: str = "auto",
        progress: Progress = False,
    ) -> Floats:
        """Vectors (N, D) float32 of ``texts``, any iterable, as "right" texts or as "left" ones, which ask.

        >>> model.encode(["any text"]).shape  # doctest: +SKIP
        (1, 128)
        """
        parts = self.encode_batches(texts, side=side, batch_size=batch_size, device=device, progress=progress)
        return joined(parts, length_of(texts), self.width)

    def encode_batches(
        self,
        texts: Iterable[str],
        *,
        side: str = "right",
        batch_size: int = BATCH,
        device: str = "auto",
        progress: Progress = False,
    ) -> Iterator[Floats]:
        """The same a batch at a time, (n, D), for more texts than memory holds."""
        if side not in SIDES:
            raise InputError(f"side: got {side!r}, expected one of {', '.join(SIDES)}.")
        return self._batches(texts, side, batch_size, resolve(device), progress)

    def _batches(self, texts: Iterable[str], side: str, size: int, device: str, progress: Progress) -> Iterator[Floats]:
        self.network.to(device)
        length = self.record.lengths[SIDES[side]]

        def read(part: list[Any], first: int) -> dict[str, Tensor]:
            return {"tokens": tokens_of(self.tokenizer, part, length, first)}

        def encode(tokens: Tensor) -> Tensor:
            return self.network.encode_texts(tokens, side)

        with shown(progress, "texts", length_of(texts)) as tell:
            for vectors in encoded(batches(texts, size), read, encode, device):
                tell(len(vectors))
                yield vectors

    def score(self, queries: Iterable[str], texts: Iterable[str], *, device: str = "auto") -> Floats:
        """Scores (Q, N) of every left text of ``queries`` with every right text of ``texts``."""
        return self.encode(queries, side="left", device=device) @ self.encode(texts, device=device).T

    def search(
        self,
        queries: Iterable[str] | NDArray[Any] | Tensor,
        corpus: Iterable[str] | NDArray[Any] | Tensor,
        n: int = 10,
        *,
        batch_size: int = 8 * BATCH,
        device: str = "auto",
        progress: Progress = False,
    ) -> TopN:
        """The ``n`` best right texts of ``corpus`` for each query: exact, a block of the corpus at a time.

        ``corpus`` may be vectors (N, D) that `encode` made, and so may ``queries``, as "left" ones. Ids are places in
        the corpus.
        """
        where = resolve(device)
        check_n(n)
        queries, corpus = _as_array(queries), _as_array(corpus)
        names: list[Any] = list(range(len(queries))) if isinstance(queries, np.ndarray) else several("queries", queries)
        asked = self._vectors(queries if isinstance(queries, np.ndarray) else names, "left", where)
        if isinstance(corpus, np.ndarray):
            ids, scores = top_n(asked, self._vectors(corpus, "right", where), n)
        else:
            start, ids = 0, torch.zeros((len(names), 0), dtype=torch.int64, device=where)
            scores = torch.zeros((len(names), 0), device=where)
            with shown(progress, "texts", length_of(corpus)) as tell:
                for part in batches(corpus, batch_size):
                    found, best = top_n(asked, self._vectors(part, "right", where), n)
                    found = torch.where(found == NOBODY, NOBODY, found + start)
                    ids, scores = merge((ids, scores), (found, best), n)
                    start += len(part)
                    tell(len(part))
        return TopN(names, ids.cpu().numpy(), scores.cpu().numpy(), lambda numbers: numbers.tolist())

    def _vectors(self, texts: Iterable[str] | NDArray[Any], side: str, device: str) -> Tensor:
        if not isinstance(texts, np.ndarray):
            return torch.from_numpy(self.encode(texts, side=side, device=device)).to(device)
        if texts.ndim != 2 or texts.shape[1] != self.width or texts.dtype.kind != "f":
            raise InputError(
                f"vectors: got {texts.dtype} of shape {texts.shape}, expected numbers of shape (N, {self.width}), as "
                "encode makes them."
            )
        if len(broken := np.flatnonzero(~np.isfinite(texts).all(1))):
            raise InputError(
                f"vectors: row {broken[0]} ({len(broken)} of {len(texts)}) has values that are not finite, expected "
                "numbers. Leave it out, or encode its text again."
            )
        return torch.from_numpy(np.asarray(texts, np.float32)).to(device)

    def mine(
        self,
        pairs: Any,
        n: int = 4,
        margin: float = 0.05,
        *,
        columns: Mapping[str, str] | None = None,
        out: str | PathLike[str] | None = None,
        device: str = "auto",
        progress: Progress = False,
    ) -> Any:
        """Hard negatives for the next run: an Arrow table of ``query``, ``positive``, ``negative_1`` to ``negative_n``.

        ``pairs`` is what `negwise.train` takes: a file, a frame, a list of dictionaries, with the same ``columns``; or
        (left, right) texts. The negatives of a pair are the right
        texts of other pairs that score highest, without likely false negatives: right texts that any pair joins with
        the same left text, texts of the same words, and all that come closer to the positive's score than ``margin``,
        in cosine similarity. Where fewer than ``n`` remain, the last are null. ``out`` writes the table: .csv, .jsonl
        or .parquet.
        """
        return mining.mine(self, pairs, n, margin, columns=columns, out=out, device=device, progress=progress)

    def export(
        self, folder: str | PathLike[str], *, vectors: bool = False, onnx: bool = False, histories: bool = False
    ) -> Path:
        """Write a folder that `negwise.load` opens anywhere: weights, words, settings and a model card.

        ``onnx`` adds the encoder as ONNX. ``vectors`` and ``histories`` are refused: a model of texts has no items and
        no users of its own. For vectors of texts see `encode`.
        """
        if vectors or histories:
            raise InputError(
                f"{'vectors' if vectors else 'histories'}: a model of texts has no items and no users of its own. "
                f"For vectors of texts type: negwise encode {self.home.path} texts.csv --out vectors.npy"
            )
        return export_model(self.home, self.network, folder, onnx=onnx)


def _as_array(values: Any) -> Any:
    """A tensor of vectors as an array; texts as they are."""
    return values.detach().float().cpu().numpy() if isinstance(values, Tensor) else values
