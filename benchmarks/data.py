"""Where real data lies: the folder that NEGWISE_DATA names, or ``shared/data`` beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path


def find(name: str) -> Path | None:
    """A file or folder of real data, such as ``mind/behaviors.tsv``, or None."""
    homes = [os.environ.get("NEGWISE_DATA", ""), str(Path(__file__).parents[2] / "shared" / "data")]
    found = [Path(home) / name for home in homes if home and (Path(home) / name).exists()]
    return found[0] if found else None


def need(name: str) -> Path:
    path = find(name)
    if path is None:
        raise FileNotFoundError(f"{name} is nowhere; set NEGWISE_DATA to the folder that it is in")
    return path
