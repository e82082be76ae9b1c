"""Texts to vectors: tokenized and encoded a batch at a time, so that memory does not grow with their number."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, starmap
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.errors import InputError
from negwise.host_copy import HostCopy, to_device
from negwise.inference.given_values import check_several
from negwise.models import WordTokenizer
from negwise.requests.option_fields import check_choice
from negwise.requests.training_requests import DEVICES
from negwise.tasks import resolve_device

Floats = NDArray[np.float32]
BATCH = 1024
"""Texts that are encoded at a time, where nothing else is asked for."""
GPU_READERS = 4
"""Threads that cut texts into words for a GPU. It encodes small models faster than one thread cuts."""


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
    tokens = tokenizer.encode(texts, length, first)
    used = max(int((tokens != 0).any(0).sum()), 1)  # some layers cannot take an empty text
    return torch.from_numpy(np.ascontiguousarray(tokens[:, :used]))


def encoded(
    parts: Iterable[list[Any]],
    read: Callable[[list[Any], int], Mapping[str, Tensor]],
    encode: Callable[..., Tensor],
    device: str,
) -> Iterator[Floats]:
    """Vectors (n, D) of each part. ``read`` makes the arguments of ``encode``, told the number of a part's first value.

    On a GPU, threads read the next parts and vectors travel to the host while it encodes.
    """
    where = torch.device(device)
    running: HostCopy | None = None
    for arguments in in_order(read, with_places(parts), GPU_READERS if where.type == "cuda" else 0):
        with torch.no_grad():
            vectors = encode(**{name: to_device(values, where) for name, values in arguments.items()}).float()
        before, running = running, HostCopy(vectors)
        if before is not None:
            yield before.array
    if running is not None:
        yield running.array


def with_places(parts: Iterable[list[Any]]) -> Iterator[tuple[list[Any], int]]:
    """Each part, and how many values came before it."""
    first = 0
    for part in parts:
        yield part, first
        first += len(part)


def in_order(call: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], threads: int) -> Iterator[Any]:
    """What ``call`` gives for each of ``arguments``, in their order; so many ``threads`` work on those that follow."""
    if not threads:
        yield from starmap(call, arguments)
        return
    with ThreadPoolExecutor(threads) as pool:
        begun: deque[Future[Any]] = deque()
        for one in arguments:
            begun.append(pool.submit(call, *one))
            if len(begun) > threads:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


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
