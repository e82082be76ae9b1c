"""Small data sets in the forms that people have, written from plain rows that the tests keep as referee."""

import gzip
import lzma
import os
import random
from pathlib import Path

import pyarrow as pa
import pytest


def shared(name):
    """A folder of real data, or a skip that says which one is missing."""
    root = Path(os.environ.get("NEGWISE_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not (root / name).exists():
        pytest.skip(f"real data {name!r} is not there; set NEGWISE_DATA to the folder that has it")
    return root / name


def compress(path, ending):
    """``path`` compressed in place, under its name with ``ending`` added."""
    data = path.read_bytes()
    target = path.with_name(path.name + ending)
    if ending == ".gz":
        target.write_bytes(gzip.compress(data))
    elif ending == ".xz":
        target.write_bytes(lzma.compress(data))
    elif ending == ".zst":
        with pa.output_stream(str(target), compression="zstd") as stream:
            stream.write(data)
    if ending:
        path.unlink()
    return target


WORDS = [f"w{number}" for number in range(60)]


def mind_news(n, first=0, seed=0, abstracts=True):
    rng = random.Random(seed + first)
    rows = []
    for number in range(first, first + n):
        title = " ".join(rng.choices(WORDS, k=rng.randint(3, 8))) + f" T{number}"
        abstract = " ".join(rng.choices(WORDS, k=rng.randint(10, 25))) if abstracts and number % 3 else ""
        rows.append([f"N{number}", f"cat{number % 4}", f"sub{number % 7}", title, abstract, "", "[]", "[]"])
    return rows


def mind_behaviors(n, news, days, seed=0, users=12, labelled=True):
    """Rows (id, user, clock, history names, [(name, label or None)])."""
    rng = random.Random(seed)
    names = [row[0] for row in news]
    rows = []
    for number in range(n):
        day = days[number % len(days)]
        hour = rng.randint(1, 12)
        clock = f"11/{day}/2019 {hour}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d} {rng.choice(['AM', 'PM'])}"
        history = rng.choices(names, k=rng.randint(0, 9))
        shown = rng.sample(names, rng.randint(3, 9))
        clicked = rng.randint(1, 2)
        entries = [(name, int(at < clicked) if labelled else None) for at, name in enumerate(shown)]
        rng.shuffle(entries)
        rows.append((str(number + 1), f"U{rng.randrange(users)}", clock, history, entries))
    return rows


def write_mind(folder, news, behaviors, ending=""):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "news.tsv").write_text("".join("\t".join(row) + "\n" for row in news))
    lines = []
    for number, user, clock, history, entries in behaviors:
        shown = " ".join(name if label is None else f"{name}-{label}" for name, label in entries)
        lines.append("\t".join([number, user, clock, " ".join(history), shown]) + "\n")
    (folder / "behaviors.tsv").write_text("".join(lines))
    for name in ("news.tsv", "behaviors.tsv"):
        compress(folder / name, ending)
    return folder


def ratings(n_users=9, n_items=15, seed=1, most=9):
    """Rows (user, item, rating, time) in no order, some at the same time."""
    rng = random.Random(seed)
    rows = []
    for user in range(1, n_users + 1):
        chosen = rng.sample(range(1, n_items + 1), rng.randint(1, most))
        rows += [(user, item, rng.randint(1, 5), 978300000 + 86400 * rng.randint(0, 12)) for item in chosen]
    rng.shuffle(rows)
    return rows


def in_order(rows):
    """user -> items by time, then by place in the file: the plain meaning of a sequence."""
    found = {}
    for place, (user, item, _, time) in enumerate(rows):
        found.setdefault(user, []).append((time, place, item))
    return {user: [item for _, _, item in sorted(entries)] for user, entries in found.items()}
