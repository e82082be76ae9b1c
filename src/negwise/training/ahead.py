"""The next step's batch and negatives, made by a thread while the GPU works on this step's.

Both are functions of (seed, step) and of K, so that when they are made changes nothing. Only a rule that looks at
nothing but the step says K ahead of time, and samplers that are ``stateful`` are not asked ahead of it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """``get(step, k, then)`` is ``make(step, k)``; ``then`` is the K of the next step, None where it is not known."""

    def __init__(self, make: Callable[[int, float], T]) -> None:
        self._make = make
        self._thread = ThreadPoolExecutor(1, "negwise-ahead")
        self._asked: tuple[int, float] | None = None
        self._next: Future[T] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def get(self, step: int, k: float, then: float | None) -> T:
        ready = self._next.result() if self._next is not None and self._asked == (step, k) else self._make(step, k)
        self._asked = None if then is None else (step + 1, then)
        self._next = None if then is None else self._thread.submit(self._make, step + 1, then)
        return ready
