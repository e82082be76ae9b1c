"""Small data of each kind, and the task of each."""

from __future__ import annotations

import csv
import random

from negwise import datasets

PAIRS, ITEMS, USERS = 60, 30, 12


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def text_pairs(n=PAIRS, negatives=0):
    """Rows whose texts share no word with those of other rows; ``neg_1``... are right texts of rows close by."""
    left, right = ([f"{side}{i} {side}{i}b {side}{i}c" for i in range(n)] for side in ("q", "a"))
    rows = [{"query": left[i], "pos": right[i]} for i in range(n)]
    for i, row in enumerate(rows):
        row |= {f"neg_{j}": right[(i + j) % n] for j in range(1, negatives + 1)}
    return rows


def interactions(seed=0):
    dice = random.Random(seed)
    rows = []
    for user in range(USERS):
        for time, item in enumerate(dice.choices(range(ITEMS), k=dice.randrange(4, 12))):
            rows.append({"user": f"u{user}", "item": f"i{item}", "time": time})
    return [*rows, {"user": "alone", "item": "i0", "time": 0}]  # in training only, and never an example


def make_data(kind, folder):
    """A `TaskData` of 'impressions', 'sequences', 'pairs' or 'pairs with negatives'."""
    if kind == "impressions":
        world = datasets.clicks(users=20, items=40, impressions=120, shown=8, history=5, click_rate=0.3, seed=1)
        return world.task(history=5)
    rows = interactions() if kind == "sequences" else text_pairs(negatives=2 * (kind == "pairs with negatives"))
    source = datasets.read(write_csv(folder / "data.csv", rows), cache=folder / "cache")
    return datasets.prepare(source, history=10)
