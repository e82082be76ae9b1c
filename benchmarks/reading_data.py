"""Data for the benchmark of reading, made by a seeded generator: interactions, impressions and text pairs in any size.

Made block by block, so that twenty million rows need no memory. Users and items are drawn with a heavy tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BLOCK = 2**19
FIRST_SECOND, LAST_SECOND = 1_500_000_000, 1_504_000_000
NEWS = 50_000


def interactions(rows: int, users: int, items: int, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
    """Blocks of user, item, rating and time."""
    for at in range(0, rows, BLOCK):
        random = np.random.default_rng([seed, at])
        n = min(BLOCK, rows - at)
        yield {
            "user": _heavy_tail(random, n, users),
            "item": _heavy_tail(random, n, items),
            "rating": random.integers(1, 6, n),
            "time": random.integers(FIRST_SECOND, LAST_SECOND, n),
        }


def write_lines(path: Path, form: str, rows: int, users: int, items: int) -> Path:
    """Interactions as ``csv``, ``quoted`` CSV, ``dat`` or ``jsonl``."""
    header, line = {
        "csv": ("user,item,rating,time\n", ["", ",", ",", ",", ""]),
        "quoted": ('"user","item","rating","time"\n', ['"', '","', '",', ",", ""]),
        "dat": ("", ["", "::", "::", "::", ""]),
        "jsonl": ("", ['{"user": ', ', "item": ', ', "rating": ', ', "time": ', "}"]),
    }[form]
    with path.open("w") as stream:
        stream.write(header)
        for block in interactions(rows, users, items):
            cells = [pa.array(column).cast(pa.string()) for column in block.values()]
            parts = [part for pair in zip(line[:-1], cells, strict=True) for part in pair]
            lines = pc.binary_join_element_wise(*parts, line[-1], "")
            stream.write("\n".join(lines.to_pylist()) + "\n")
    return path


def write_parquet(path: Path, rows: int, users: int, items: int, *, text: bool = False) -> Path:
    """Interactions as Parquet, with ids as numbers or as texts."""
    writer = None
    for block in interactions(rows, users, items):
        columns: dict[str, Any] = {name: pa.array(column) for name, column in block.items()}
        if text:
            columns |= {name: columns[name].cast(pa.string()) for name in ("user", "item")}
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return path


def write_mind(folder: Path, impressions: int, users: int, shown: int = 6, history: int = 6) -> Path:
    """MIND's two files: ``impressions`` with ``shown`` news each, one of them clicked, and ``history`` before."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    words = np.array([f"word{n}" for n in range(5000)])
    titles = words[_heavy_tail(random, (NEWS, 8), 5000)]
    with (folder / "news.tsv").open("w") as stream:
        for n, title in enumerate(titles):
            stream.write(f"N{n}\tcat{n % 9}\tsub{n % 50}\t{' '.join(title)}\t\t\t[]\t[]\n")
    names = np.array([f"N{n}" for n in range(NEWS)], dtype=object)
    with (folder / "behaviors.tsv").open("w") as stream:
        for at in range(0, impressions, 2**16):
            n = min(2**16, impressions - at)
            random = np.random.default_rng([2, at])
            past, listed = (names[_heavy_tail(random, (n, width), NEWS)] for width in (history, shown))
            listed = listed + np.where(np.arange(shown) == random.integers(0, shown, n)[:, None], "-1", "-0").astype(
                object
            )
            who = _heavy_tail(random, n, users).tolist()
            second = random.integers(0, 40_000, n).tolist()
            stream.writelines(
                f"{at + row}\tU{who[row]}\t11/{9 + row % 14}/2019 {_clock(second[row])}\t"
                f"{' '.join(past[row])}\t{' '.join(listed[row])}\n"
                for row in range(n)
            )
    return folder


def write_pairs(path: Path, rows: int) -> Path:
    """Titles of 8 and bodies of 60 words as JSON lines."""
    random = np.random.default_rng(3)
    words = np.array([f"Word{n}" for n in range(30_000)], dtype=object)
    with path.open("w") as stream:
        for at in range(0, rows, 10_000):
            n = min(10_000, rows - at)
            left, right = (words[_heavy_tail(random, (n, width), len(words))] for width in (8, 60))
            stream.writelines(
                f'{{"title": "{" ".join(left[row])}", "body": "{", ".join(right[row])}."}}\n' for row in range(n)
            )
    return path


def _heavy_tail(random: np.random.Generator, size: Any, values: int) -> np.ndarray:
    """Numbers below ``values``; half of the draws fall on about a thirtieth of them."""
    return (values * random.random(size) ** 5).astype(np.int64)


def _clock(second: int) -> str:
    hour, minute = second // 3600 + 1, second // 60 % 60
    return f"{hour}:{minute:02d}:{second % 60:02d} {'AM' if second % 2 else 'PM'}"
