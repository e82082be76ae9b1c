"""Says how far reading is and how long it will take, for data that takes a while."""

from __future__ import annotations

import time
from collections.abc import Callable

from negwise.stages import EVERY, Progress, in_words


def told(say: Callable[[str], None], name: str, clock: Callable[[], float] = time.monotonic) -> Progress:
    """A `Progress` that calls ``say`` with a line such as ``reading log.csv: 40%, 12 s left``, every two seconds."""
    began = last = clock()

    def progress(share: float) -> None:
        nonlocal last
        now = clock()
        if now - last < EVERY or not 0 < share < 1:
            return
        last = now
        left = (now - began) * (1 - share) / share
        say(f"reading {name}: {share:.0%}, {in_words(left)} left")

    return progress
