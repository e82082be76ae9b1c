"""Texts to vectors: tokenized and encoded a batch at a time, so that memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.errors import InputError, quote
from negwise.inference.given_values import check_several
from negwise.models import WordTokenizer
from negwise.requests.option_fields import check_choice
from negwise.requests.training_requests import DEVICES
from negwise.tasks import resolve_device

Floats = NDArray[np.float32]
BATCH = 1024
"""Texts that are encoded at a time, where nothing else is asked for."""


def batches(values: Iterable[Any], size: int, what: str = "texts") -> Iterator[list[Any]]:
    """Lists of ``size`` values, the last one shorter; ``what`` they are, for errors."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InputError(f"batch_size: got {size!r}, expected a whole number, 1 or more.")
    check_several(what, values)
    source = iter(values)
    while part := list(islice(source, size)):
        yield part


def tokens_of(tokenizer: WordTokenizer, texts: Sequence[Any], length: int, first: int = 0) -> Tensor:
    """Token ids (N, L) without columns that are padding in every row; ``first`` is the number of the first text."""
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts: number {first + place} is {quote(text)}, expected a text.")
    tokens = tokenizer.encode(texts, length)
    used = max(int((tokens != 0).any(0).sum()), 1)  # some layers cannot take an empty text
    return torch.from_numpy(tokens[:, :used])


def encoded(
    parts: Iterable[Mapping[str, Tensor]], encode: Callable[..., Tensor], device: str
) -> Iterator[NDArray[np.float32]]:
    """Vectors (n, D) of each part, whose tensors are arguments of ``encode``.

    A part is read before the vectors of the one before it are waited for: words are cut while a GPU encodes.
    """
    running: Tensor | None = None
    for part in parts:
        if running is not None:
            yield running.cpu().numpy()
        with torch.no_grad():
            running = encode(**{name: values.to(device) for name, values in part.items()}).float()
    if running is not None:
        yield running.cpu().numpy()


def joined(parts: Iterator[Floats], count: int | None, width: int) -> Floats:
    """All parts as one array (N, width); where ``count`` is known, without ever holding them twice."""
    if count is None:
        found = list(parts)
        return np.concatenate(found) if found else np.zeros((0, width), np.float32)
    whole, at = np.empty((count, width), np.float32), 0
    for part in parts:
        whole[at : at + len(part)] = part
        at += len(part)
    return whole


def length_of(values: Iterable[Any]) -> int | None:
    """How many there are, where that is known beforehand."""
    return len(values) if isinstance(values, Sequence | np.ndarray) else None


def resolve(device: str) -> str:
    """ "cpu" or "cuda", as asked for or as there is."""
    check_choice("device", device, DEVICES)
    return resolve_device(device)


def no_such(model: Any, name: str, kind: str, has: str) -> Any:
    """What to say of an attribute that ``model`` does not have."""
    hint = "" if name.startswith("_") else f": it is {kind}, which has {has}"
    raise AttributeError(f"{type(model).__name__!r} object has no attribute {name!r}{hint}")
