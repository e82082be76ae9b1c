"""Reading, from a file to numbered and checked columns in the cache, beside Arrow's own reading and encoding.

One thread each, by CPU time. Arrow's side parses the file and encodes ids; it checks nothing and writes nothing. Titles
of MIND and texts of pairs it also puts in lower case and cuts into words by a regular expression, as we cut them: those
two are measured without that as well. Then 20 million interactions and 16 million impressions, each step in a process
of its own: time, peak memory, and the lines with an ETA that a user sees.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.parquet as pq

from benchmarks import reading_data as made
from benchmarks.table import Row
from negwise.datasets import TaskData, inspect_source, prepare, read
from negwise.stages import signs_of_life

BAR = 3.0
"""Times Arrow's own."""
MEMORY_MB = 2000.0
ROWS, USERS, ITEMS = 2_000_000, 200_000, 50_000
LARGE, LARGE_USERS, LARGE_ITEMS = 20_000_000, 1_000_000, 200_000
IMPRESSIONS = 16_000_000
DRAWN = 512
"""Rows whose negatives are drawn at the end, so that a sampler that makes its lists late makes them too."""


def run() -> list[Row]:
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as folder:
        return [*_beside_arrow(Path(folder)), *_interactions(Path(folder)), *_impressions(Path(folder))]


def _beside_arrow(folder: Path) -> list[Row]:
    lines = {form: made.write_lines(folder / f"log.{form}", form, ROWS, USERS, ITEMS) for form in _LINES}
    numbers = made.write_parquet(folder / "numbers.parquet", ROWS, USERS, ITEMS)
    texts = made.write_parquet(folder / "texts.parquet", ROWS, USERS, ITEMS, text=True)
    mind = made.write_mind(folder / "mind", 200_000, 50_000)
    pairs = made.write_pairs(folder / "pairs.jsonl", 50_000)
    cases: dict[str, tuple[Path, Callable[[Path], object]]] = {
        "CSV, 2 M interactions": (lines["csv"], _arrow_csv),
        "CSV with quotes, 2 M interactions": (lines["quoted"], _arrow_csv),
        ":: lines, 2 M interactions": (lines["dat"], _arrow_dat),
        "JSON lines, 2 M interactions": (lines["jsonl"], _arrow_json),
        "Parquet, ids as numbers, 2 M interactions": (numbers, _arrow_parquet),
        "Parquet, ids as texts, 2 M interactions": (texts, _arrow_parquet),
        "MIND, 200,000 impressions": (mind, _arrow_mind),
        "JSON lines, 50,000 text pairs": (pairs, _arrow_pairs),
    }
    rows = []
    for name, (path, by_arrow) in cases.items():
        spent = _cpu_seconds({"ours": partial(_read_anew, path), "arrow": partial(by_arrow, path)})
        rows.append(Row(f"read {name}", "CPU time, times Arrow's", spent["ours"] / spent["arrow"], BAR, "lower"))
        rows.append(Row(f"read {name}", "CPU time", spent["ours"], None, "lower", "s"))
        if by_arrow in _WITHOUT_WORDS:
            plain = _cpu_seconds({"arrow": partial(_WITHOUT_WORDS[by_arrow], path)})
            measure = "CPU time, times Arrow's without cutting words"
            rows.append(Row(f"read {name}", measure, spent["ours"] / plain["arrow"], None, "lower"))
    return rows


_LINES = ("csv", "quoted", "dat", "jsonl")


def _cpu_seconds(calls: dict[str, Callable[[], object]], repeats: int = 5) -> dict[str, float]:
    """Median CPU seconds of each call, taking turns. Both have one thread; other work on the machine counts less."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            began = time.process_time()
            call()
            if turn:  # the first one warms up
                times[name].append(time.process_time() - began)
    return {name: median(spent) for name, spent in times.items()}


def _read_anew(path: Path) -> None:
    with tempfile.TemporaryDirectory() as cache:
        read(path, cache=cache)


def _encoded(table: pa.Table) -> list[object]:
    return [table[name].dictionary_encode() for name in ("user", "item")]


def _arrow_csv(path: Path) -> object:
    return _encoded(arrow_csv.read_csv(path, arrow_csv.ReadOptions(use_threads=False)))


def _arrow_dat(path: Path) -> object:
    data = pa.BufferReader(path.read_bytes().replace(b"::", b"\x1f"))
    names = arrow_csv.ReadOptions(use_threads=False, column_names=["user", "item", "rating", "time"])
    return _encoded(arrow_csv.read_csv(data, names, arrow_csv.ParseOptions(delimiter="\x1f")))


def _arrow_json(path: Path) -> object:
    return _encoded(arrow_json.read_json(path, arrow_json.ReadOptions(use_threads=False)))


def _arrow_parquet(path: Path) -> object:
    return _encoded(pq.read_table(path, use_threads=False))


def _arrow_mind(path: Path, *, words: bool = True) -> object:
    tabs = arrow_csv.ParseOptions(delimiter="\t", quote_char=False)
    news, rows = (
        arrow_csv.read_csv(path / file, arrow_csv.ReadOptions(use_threads=False, autogenerate_column_names=True), tabs)
        for file in ("news.tsv", "behaviors.tsv")
    )
    lists = [pc.list_flatten(pc.split_pattern(rows[name], " ")).dictionary_encode() for name in ("f3", "f4")]
    return rows["f1"].dictionary_encode(), lists, _words(news["f3"]) if words else None


def _arrow_pairs(path: Path, *, words: bool = True) -> object:
    table = arrow_json.read_json(path, arrow_json.ReadOptions(use_threads=False))
    return [_words(table[name]) if words else table[name].dictionary_encode() for name in table.column_names]


def _words(texts: pa.ChunkedArray) -> object:
    return pc.list_flatten(pc.split_pattern_regex(pc.utf8_lower(texts), "[^a-z0-9']+")).dictionary_encode()


_WITHOUT_WORDS: dict[Callable[[Path], object], Callable[[Path], object]] = {
    _arrow_mind: partial(_arrow_mind, words=False),
    _arrow_pairs: partial(_arrow_pairs, words=False),
}


def _interactions(folder: Path) -> list[Row]:
    path = made.write_lines(folder / "large.csv", "csv", LARGE, LARGE_USERS, LARGE_ITEMS)
    return _large("20 M interactions", path, folder / "cache")


def _impressions(folder: Path) -> list[Row]:
    path = made.write_mind(folder / "large", IMPRESSIONS, LARGE_USERS)
    return _large("16 M impressions", path, folder / "cache")


def _large(name: str, path: Path, cache: Path) -> list[Row]:
    first, again = _child("read", path, cache), _child("read", path, cache)
    split, described = _child("prepare", path, cache), _child("inspect", path, cache)
    return [
        Row(f"{name}: read", "seconds", first["seconds"], None, "lower", "s"),
        Row(f"{name}: read", "peak memory", first["peak_mb"], MEMORY_MB, "lower", "MB"),
        Row(f"{name}: read", "lines with an ETA", first["told"], 1, "higher", "lines"),
        Row(f"{name}: read again", "seconds without the hash of the file", again["open"], 1.0, "lower", "s"),
        Row(f"{name}: read again", "peak memory", again["peak_mb"], None, "lower", "MB"),
        Row(f"{name}: splits and exclusions", "seconds", split["seconds"], None, "lower", "s"),
        Row(f"{name}: splits and exclusions", "peak memory", split["peak_mb"], MEMORY_MB, "lower", "MB"),
        Row(f"{name}: splits and exclusions", "lines with an ETA", split["told"], 1, "higher", "lines"),
        Row(f"{name}: negwise data", "seconds, once read and split", described["seconds"], None, "lower", "s"),
        Row(f"{name}: negwise data", "peak memory", described["peak_mb"], MEMORY_MB, "lower", "MB"),
    ]


def _child(step: str, path: Path, cache: Path) -> dict[str, float]:
    """One step in a process of its own, with one thread."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "benchmarks.reading", step, str(path), str(cache)]
    out = subprocess.run(command, env=os.environ | one, capture_output=True, text=True, check=True)
    return dict(json.loads(out.stdout))


def _step(step: str, path: str, cache: str) -> None:
    pa.set_cpu_count(1)
    said: list[str] = []
    with signs_of_life(said.append):
        found = _timed(step, path, cache)
    about = "reading" if step == "read" else "splitting"
    lines = [line for line in said if line.startswith(about) and line.endswith("left")]
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps(found | {"peak_mb": int(peak.split()[1]) * 1024 / 1e6, "told": len(lines)}))


def _timed(step: str, path: str, cache: str) -> dict[str, float]:
    began = time.perf_counter()
    source = read(path, cache=cache)
    spent = time.perf_counter() - began
    began = time.perf_counter()
    read(path, cache=cache)
    opened = time.perf_counter() - began
    if step != "read":
        began = time.perf_counter()
        if step == "prepare":
            _draw_some(prepare(source))
        else:
            inspect_source(source)
        spent = time.perf_counter() - began
    return {"seconds": spent, "open": opened}


def _draw_some(data: TaskData) -> None:
    """Make the exclusions and the sampler of ``data``, and draw once."""
    from negwise.draws import Key  # torch, whose memory counts here only
    from negwise.tasks.sampler_choice import make_sampler

    _, positives, groups = data.train.batch(range(DRAWN))
    make_sampler(data, None)(positives, 4, Key(0, 0), owner=groups)


if __name__ == "__main__":
    _step(*sys.argv[1:])
