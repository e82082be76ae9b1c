"""What a command shows: results on standard output, all else on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from negwise.errors import NegwiseError

if TYPE_CHECKING:
    from negwise.theory.estimate import Estimate


def show_files(files: list[Path], as_json: bool) -> None:
    paths = [str(path) for path in files]
    print(json.dumps({"files": paths}) if as_json else "\n".join(paths))


@contextmanager
def stopping() -> Iterator[None]:
    """Ctrl-C: a word on how to go on, and the exit code that shells expect.

    `negwise.training.Stopped`, a KeyboardInterrupt, says what was saved; another one comes where nothing was to be.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        if speaks():
            said = str(stopped) or "stopped. Type the same command again; what is in its folder stays done"
            print(f"negwise: {said}", file=sys.stderr)
        raise typer.Exit(130) from None


def speaks() -> bool:
    """Of several processes under ``torchrun`` the first one."""
    return os.environ.get("RANK", "0") == "0"


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def show_results(results: Mapping[str, Any], out: Path, as_json: bool) -> None:
    """The results of a job; exit 1 where every run of it failed."""
    if as_json:
        print(json.dumps({**results, "out": str(out)}))
    else:
        from negwise import terminal

        terminal.show_results(results, out)
    if results["chosen"] is None:
        raise NegwiseError(f"{out}: no run came to an end; each says why in its failed.json.")


def show_estimate(found: Estimate, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found.to_dict()))
    elif sys.stdout.isatty():
        from negwise import terminal

        terminal.show_estimate(found)
    else:
        print(found.explain())
