"""Serving on one core: the top 10 of 100,000 items for 10,000 users, exact, and vectors of texts.

The top 10 stand beside the obvious lines in NumPy (blocks of scores, `argpartition`, a sort of ten) and in torch
(blocks of scores, `topk`); all three are checked to agree. `recommend` is the whole call of a BERT4Rec with 10,000
users: ids looked up, histories encoded, what they have seen left out; beside the same in torch lines. `encode` is the
whole call, texts in and vectors out, beside the model's own forward pass on tokens that are there already.

The models have random weights, as speed does not depend on them. ``NEGWISE_DEVICE=cuda`` measures on a GPU, where
NumPy is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from benchmarks.table import Row, peak_extra_mb, seconds
from negwise.datasets import Ragged
from negwise.inference import load, top_n
from negwise.models import WordTokenizer, build
from negwise.protocols import Query
from negwise.records import ITEMS, TOKENIZER, USERS, ModelRecord, with_manifest
from negwise.tasks.model_files import arrow_file, as_lists

ITEMS_N, USERS_N, WIDTH, N, HISTORY = 100_000, 10_000, 64, 10, 20
BLOCK = 256
"""Queries in a block of the obvious lines, of 100 MB; twice or half as many are no faster."""
TEXTS, WORDS, VOCABULARY = 4096, 30, 20_000
REPEATS = 3
MEMORY_MB = 1000


def run() -> list[Row]:
    """The rows, each measured in a process of its own, so that peaks of memory are its own."""
    device = os.environ.get("NEGWISE_DEVICE", "cpu")
    rows = []
    for part in ("top_rows", "recommend_rows", "encode_rows"):
        code = (
            "import json, torch; torch.set_num_threads(1); from benchmarks import serving; "
            f"print(json.dumps([row.to_dict() for row in serving.{part}({device!r})]))"
        )
        one_core = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-c", code], check=True, env=one_core, stdout=subprocess.PIPE, text=True)
        for row in json.loads(done.stdout):
            del row["passed"]
            rows.append(Row(**row))
    return rows


def top_rows(device: str) -> list[Row]:
    random = torch.Generator().manual_seed(0)
    queries = torch.randn(USERS_N, WIDTH, generator=random).to(device)
    items = torch.randn(ITEMS_N, WIDTH, generator=random).to(device)
    calls: dict[str, Callable[[], Any]] = {
        "ours": lambda: top_n(queries, items, N)[0],
        "torch": lambda: torch_lines(queries, items),
    }
    if device == "cpu":
        calls["numpy"] = lambda: numpy_lines(queries.numpy(), items.numpy())
    few = queries[:BLOCK]
    ours = top_n(few, items, N)[0].cpu().numpy()
    # Blocks of other sizes round differently, which may swap near ties.
    assert np.mean(ours == torch_lines(few, items).cpu().numpy()) > 0.999
    assert device != "cpu" or np.mean(ours == numpy_lines(few.numpy(), items.numpy())) > 0.999
    spent = seconds({name: waiting(call, device) for name, call in calls.items()}, REPEATS)
    fastest = min(value for name, value in spent.items() if name != "ours")
    work = f"top {N} of {ITEMS_N:,} for {USERS_N:,}, width {WIDTH}, {device}"
    return [
        Row(work, "the fastest of NumPy and torch / ours", fastest / spent["ours"], 1.0),
        *(Row(work, f"{name}, whole", value, unit="s", better="lower") for name, value in spent.items()),
        Row(work, "peak memory of ours", peak_extra_mb(calls["ours"]), MEMORY_MB, "lower", "MB"),
    ]


def recommend_rows(device: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        histories = write_recommender(Path(folder))
        model: Any = load(folder)
    users = [f"user {number}" for number in range(USERS_N)]
    whole = peak_extra_mb(lambda: model.recommend(users, n=N, device=device))
    network = model.network.to(device)
    table = network.table.contiguous()

    def lines() -> Tensor:
        found = []
        with torch.no_grad():
            for start in range(0, USERS_N, BLOCK):
                seen = torch.from_numpy(histories[start : start + BLOCK]).to(device)
                query = Query(seen, torch.ones_like(seen, dtype=torch.bool), seen[:, 0])
                scores = network.encode_queries(query, lambda ids: table[ids]) @ table.T
                found.append(scores.scatter_(1, seen, -torch.inf).topk(N, dim=1).indices)
        return torch.cat(found)

    calls: dict[str, Callable[[], Any]] = {"ours": lambda: model.recommend(users, n=N, device=device), "torch": lines}
    assert np.mean(calls["ours"]().ids == lines().cpu().numpy()) > 0.999  # rounding may swap near ties
    spent = seconds({name: waiting(call, device) for name, call in calls.items()}, REPEATS)
    work = f"recommend for {USERS_N:,} users of {HISTORY} items, {device}"
    return [
        Row(work, "torch lines / ours", spent["torch"] / spent["ours"], 1.0),
        Row(work, "ours, whole", spent["ours"], unit="s", better="lower"),
        Row(work, "peak memory of ours", whole, MEMORY_MB, "lower", "MB"),
    ]


def encode_rows(device: str) -> list[Row]:
    rows = []
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, VOCABULARY, rng.integers(5, WORDS))) for _ in range(TEXTS)]
    for name in ("siamese-cnn", "siamese-lstm", "siamese-transformer"):
        with tempfile.TemporaryDirectory() as folder:
            write_text_model(Path(folder), name)
            model: Any = load(folder)
        tokens = torch.from_numpy(model.tokenizer.encode(texts, WORDS)).to(device)
        network = model.network.to(device)

        def forward(network: Any = network, tokens: Tensor = tokens) -> Tensor:
            with torch.no_grad():
                return torch.cat([network.encode_texts(part, "right") for part in torch.split(tokens, 1024)])

        def whole(model: Any = model) -> Any:
            return model.encode(texts, device=device, batch_size=1024)

        assert np.allclose(forward().cpu().numpy(), whole(), atol=1e-4)
        spent = seconds({"forward": waiting(forward, device), "whole": whole}, REPEATS)
        work = f"encode {TEXTS:,} texts, {name}, {device}"
        rows += [
            Row(work, "throughput beside the forward pass alone", spent["forward"] / spent["whole"], 0.9),
            Row(work, "texts a second", TEXTS / spent["whole"], unit="/s"),
        ]
    return rows


def torch_lines(queries: Tensor, items: Tensor) -> Tensor:
    return torch.cat([(part @ items.T).topk(N, dim=1).indices for part in torch.split(queries, BLOCK)])


def numpy_lines(queries: Any, items: Any) -> Any:
    found = []
    for start in range(0, len(queries), BLOCK):
        scores = queries[start : start + BLOCK] @ items.T
        best = np.argpartition(scores, scores.shape[1] - N, axis=1)[:, -N:]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
        found.append(np.take_along_axis(best, order, 1))
    return np.concatenate(found)


def waiting(call: Callable[[], Any], device: str) -> Callable[[], Any]:
    """``call``, and on a GPU the wait for it."""

    def done() -> Any:
        found = call()
        if device == "cuda":
            torch.cuda.synchronize()
        return found

    return done


def write_recommender(folder: Path) -> Any:
    """An exported BERT4Rec of random weights; returns the histories (users, items), none of which has an item twice."""
    settings = {"max_len": HISTORY, "heads": 1, "head_dim": WIDTH, "layers": 1}
    sizes = {"n_items": ITEMS_N, "n_users": USERS_N}
    torch.manual_seed(0)
    network = build("bert4rec", sizes, **settings)
    torch.nn.init.normal_(network.items.weight)
    rng = np.random.default_rng(0)
    share = ITEMS_N // HISTORY
    histories = rng.integers(0, share, (USERS_N, HISTORY)) + np.arange(HISTORY) * share
    offsets = np.arange(USERS_N + 1) * HISTORY
    files = {
        ITEMS: arrow_file({"id": [f"item {number}" for number in range(ITEMS_N)]}),
        USERS: arrow_file(
            {
                "id": [f"user {number}" for number in range(USERS_N)],
                "history": as_lists(Ragged(offsets, histories.ravel())),
            }
        ),
    }
    _write(folder, ModelRecord("bert4rec", "sequences", settings, sizes, {}, HISTORY, "ndcg@10", "4"), network, files)
    return histories


def write_text_model(folder: Path, name: str) -> None:
    """An exported siamese model of random weights, with its default settings."""
    words = ("<pad>", "<unk>", *(f"w{number}" for number in range(VOCABULARY)))
    nothing = np.zeros((1, 1), np.int64)
    torch.manual_seed(0)
    network = build(name, {"left": nothing, "right": nothing, "n_words": len(words)})
    lengths, sizes = {"title": WORDS, "body": WORDS}, {"n_items": 1, "n_users": 1, "n_words": len(words)}
    record = ModelRecord(name, "pairs", {}, sizes, lengths, 1, "hit@5", "4")
    _write(folder, record, network, {TOKENIZER: WordTokenizer(words).to_json()})


def _write(folder: Path, record: ModelRecord, network: Any, files: dict[str, bytes]) -> None:
    weights = {"weights.safetensors": save(network.state_dict())}
    for name, content in with_manifest(record, files | weights).items():
        (folder / name).write_bytes(content)
