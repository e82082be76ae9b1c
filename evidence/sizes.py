"""Catalogues of other sizes for the second study, written as interactions that any recommender reads.

Click histories of MIND as sequences; and simulated users: a user's next item is the best of a few that the user meets,
by the affinity of hidden tastes, so that what comes next can be learnt whatever the size of the catalogue.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

WIDTH = 8
"""Of the hidden tastes."""
FEWEST = 5000
"""Users of a small catalogue."""
MET = 50
"""Items that a user meets before taking one."""


def click_histories(mind: Path, out: Path) -> Path:
    """``behaviors.tsv`` as user, item and time: the longest history of every user, in its order."""
    longest: dict[str, list[str]] = {}
    with mind.joinpath("behaviors.tsv").open(encoding="utf-8") as file:
        for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            clicked = row[3].split()
            if len(clicked) > len(longest.get(row[1], [])):
                longest[row[1]] = clicked
    return _write(out, ((user, item, at) for user, items in longest.items() for at, item in enumerate(items)))


def simulated(items: int, out: Path, *, users: int | None = None, length: int = 30, seed: int = 0) -> Path:
    """``users`` with ``length`` items each, of a catalogue of ``items``: by default as many as items, so that each item
    is taken some thirty times, and at least `FEWEST`."""
    users = max(FEWEST, items) if users is None else users
    dice = np.random.default_rng([seed, items])
    tastes, kinds = dice.normal(size=(users, WIDTH)), dice.normal(size=(items, WIDTH))
    rows = []
    for user in range(users):
        met = dice.integers(0, items, (length, MET))
        taken = met[np.arange(length), (kinds[met] @ tastes[user]).argmax(1)]
        rows += [(f"u{user}", f"i{item}", at) for at, item in enumerate(taken.tolist())]
    return _write(out, rows)


def _write(out: Path, rows: object) -> Path:
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "time"])
        writer.writerows(rows)  # type: ignore[arg-type]
    return out
