"""How far work has come: nothing, a bar or lines on standard error, or a function of one's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from negwise.stages import signs_of_life, stage

Progress = bool | Callable[[int, int | None], None]
"""False shows nothing, True a bar, or without a terminal a line every two seconds; a function is called with what is
done and, where it is known, the total."""


@contextmanager
def shown(progress: Progress, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Within this, the function that it hands over takes how much more is done."""
    done = 0
    if progress is False:
        yield lambda _: None
        return
    if callable(progress):

        def tell(more: int) -> None:
            nonlocal done
            done += more
            progress(done, total)

        yield tell
        return
    if not sys.stderr.isatty():
        with signs_of_life(), stage(f"working on {what}") as share:

            def count(more: int) -> None:
                nonlocal done
                done += more
                share(done / total if total else 0.0)

            yield count
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)
