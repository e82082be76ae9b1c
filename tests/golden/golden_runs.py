"""Short seeded runs of every model, by the command line alone, so that any two versions of negwise can run them.

`write_data` makes three small data sets from a seed: text pairs, sequences, impressions in MIND's format. `RUNS` has
the arguments of ``negwise train`` for each golden run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

TOPICS, WORDS_A_TOPIC, COMMON_WORDS = 8, 30, 40
STEPS, BATCH = 12, 16

_TEXT = ["--title-words", "8", "--body-words", "16", "--pool", "64", "--setting", "hidden=24"]
_TEXT += ["--setting", "embedding=16", "--setting", "pooling=12", "--setting", "dropout=0.1"]
_NEWS = ["--split", "user", "--title-words", "8", "--body-words", "12", "--history", "6"]
_NEWS += ["--setting", "embedding=16", "--setting", "pooling=12"]
_ATTENTION = ["--setting", "heads=2", "--setting", "head_dim=8", "--setting", "embedding=16", "--setting", "pooling=12"]

RUNS: dict[str, list[str]] = {
    "siamese-cnn": ["--data", "pairs.jsonl", "--k", "5", *_TEXT],
    "siamese-lstm": ["--data", "pairs.jsonl", "--k", "ans:20", *_TEXT],
    "siamese-transformer": ["--data", "pairs.jsonl", "--k", "2.5", *_TEXT[:6], *_ATTENTION],
    "nrms": ["--data", "mind", "--k", "3", *_NEWS[:8], *_ATTENTION],
    "naml": ["--data", "mind", "--k", "warm:4", *_NEWS, "--setting", "hidden=16"],
    "lstur": ["--data", "mind", "--k", "1", *_NEWS, "--setting", "hidden=16"],
    "bert4rec": ["--data", "ratings.csv", "--k", "30", "--history", "12", "--setting", "head_dim=8"],
}
"""The arguments of ``negwise train`` by model, beside those in `arguments`."""


def arguments(model: str, data: Path, out: Path) -> list[str]:
    """``negwise train`` as a golden run types it."""
    own = [str(data / word) if before == "--data" else word for before, word in _with_previous(RUNS[model])]
    steps = ["--steps", str(STEPS), "--eval-every", str(STEPS // 2), "--batch-size", str(BATCH)]
    return [
        "train",
        "--model",
        model,
        "--recipe",
        "paper",
        *own,
        *steps,
        "--learning-rate",
        "0.01",
        "--device",
        "cpu",
        "--out",
        str(out),
    ]


def _with_previous(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(["", *words], words, strict=False))


def write_data(folder: Path) -> Path:
    """Write ``pairs.jsonl``, ``ratings.csv`` and ``mind/`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20261116)
    _write_pairs(folder / "pairs.jsonl", rng)
    _write_ratings(folder / "ratings.csv", rng)
    _write_mind(folder / "mind", rng)
    return folder


def _text(rng: np.random.Generator, topic: int, length: int) -> str:
    """Words of a topic, with common words between them."""
    own = [f"t{topic}w{number}" for number in rng.integers(0, WORDS_A_TOPIC, length)]
    common = [f"c{number}" for number in rng.integers(0, COMMON_WORDS, length)]
    return " ".join(a if coin < 0.6 else b for a, b, coin in zip(own, common, rng.random(length), strict=True))


def _write_pairs(path: Path, rng: np.random.Generator) -> None:
    topics = rng.integers(0, TOPICS, 300)
    rows = [{"title": _text(rng, t, 6), "body": _text(rng, t, int(rng.integers(8, 20)))} for t in topics]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _write_ratings(path: Path, rng: np.random.Generator) -> None:
    items, lines = 80, ["user,item,time"]
    for user in range(120):
        start = int(rng.integers(0, items))
        for place in range(int(rng.integers(5, 20))):
            item = (start + place * 3 + int(rng.integers(0, 4))) % items
            lines.append(f"u{user},i{item},{1_600_000_000 + user * 10_000 + place * 60}")
    path.write_text("\n".join(lines) + "\n")


def _write_mind(folder: Path, rng: np.random.Generator) -> None:
    folder.mkdir(exist_ok=True)
    topics = rng.integers(0, TOPICS, 160)
    news = [
        f"N{n}\tcat{t}\tsub{t}{n % 2}\t{_text(rng, t, 6)}\t{_text(rng, t, 10) if n % 3 else ''}\t\t[]\t[]"
        for n, t in enumerate(topics)
    ]
    (folder / "news.tsv").write_text("\n".join(news) + "\n")
    behaviors = []
    for number in range(200):
        user = int(rng.integers(0, 90))
        liked = np.flatnonzero(topics == user % TOPICS)
        history = rng.choice(liked, int(rng.integers(0, 7)))
        click = int(rng.choice(liked))
        others = rng.choice(np.flatnonzero(topics != user % TOPICS), 6, replace=False)
        shown = [f"N{click}-1", *(f"N{other}-0" for other in others)]
        clock = f"11/{10 + number % 10}/2019 {1 + number % 12}:{number % 60:02d}:00 {'AM' if number % 2 else 'PM'}"
        past = " ".join(f"N{n}" for n in history)
        behaviors.append(f"{number + 1}\tU{user}\t{clock}\t{past}\t{' '.join(rng.permutation(shown))}")
    (folder / "behaviors.tsv").write_text("\n".join(behaviors) + "\n")
