"""Jobs in processes of their own, side by side, until they are done or the time is up."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

Job = TypeVar("Job")
Found = TypeVar("Found")


def run_jobs(
    work: Callable[[Job], Found],
    jobs: Sequence[Job],
    *,
    workers: int,
    limit: float,
    keep: Callable[[Job, Found, float], None],
) -> None:
    """``keep(job, found, seconds since the start)`` for each job that ``work`` has done within ``limit`` seconds."""
    began, kept = time.monotonic(), 0
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    futures = {pool.submit(work, job): job for job in jobs}
    try:
        for future in as_completed(futures, timeout=limit):
            if (error := future.exception()) is not None:
                print(f"{futures[future]}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            keep(futures[future], future.result(), time.monotonic() - began)
            kept += 1
    except TimeoutError:
        print(f"{kept} of {len(jobs)} jobs done; the time is up", file=sys.stderr)
    finally:
        for process in (pool._processes or {}).values():
            process.kill()
