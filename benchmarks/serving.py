"""Serving: the top 10 of 100,000 items for 10,000 users, exact, and vectors of texts and of news.

The top 10 stand beside the obvious lines in NumPy (blocks of scores, `argpartition`, a sort of ten) and in torch
(blocks of scores, `topk`); all three are checked to agree. `recommend` is the whole call of a BERT4Rec with 10,000
users: ids looked up, histories encoded, what they have seen left out; beside the same in torch lines. `encode` is the
whole call, texts in and vectors out, beside the model's own forward pass on tokens that are there already; and the
cutting into words alone, which no model can be faster than.

The models have random weights, as speed does not depend on them::

    python -m benchmarks.serving --json benchmarks/results/serving.json
    python -m benchmarks.serving --device cuda --json benchmarks/results/serving_h200.json

Each measurement has a process of its own, and on a CPU one thread. On a GPU every call ends with a wait for the device,
NumPy is left out, and the lines in torch are also measured with larger blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

import negwise
from benchmarks.table import Row, peak_extra_mb, seconds
from negwise.datasets import Ragged
from negwise.files import write_atomically
from negwise.inference import load, top_n
from negwise.models import WordTokenizer, build
from negwise.protocols import Query
from negwise.records import ITEMS, TOKENIZER, USERS, ModelRecord, with_manifest
from negwise.tasks.model_files import arrow_file, as_lists

ITEMS_N, USERS_N, WIDTH, N, HISTORY = 100_000, 10_000, 64, 10, 20
BLOCK, LARGE_BLOCK = 256, 1024
"""Queries in a block of the obvious lines, of 100 MB; twice or half as many are no faster on a CPU. Large blocks are
faster on a GPU."""
WORDS, VOCABULARY = 30, 20_000
TEXTS = {"cpu": 4096, "cuda": 65_536}
"""Texts to encode: more where that is fast."""
ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
REPEATS = 3
MEMORY_MB = 1000


def run(device: str = "cpu") -> list[Row]:
    """The rows, each measured in a process of its own, so that peaks of memory are its own."""
    rows = []
    for part in ("top_rows", "recommend_rows", "encode_rows"):
        code = (
            f"import json, torch; {'torch.set_num_threads(1); ' if device == 'cpu' else ''}"
            "from benchmarks import serving; "
            f"print(json.dumps([row.to_dict() for row in serving.{part}({device!r})]))"
        )
        env = {**os.environ, **(ONE_CORE if device == "cpu" else {})}
        done = subprocess.run([sys.executable, "-c", code], check=True, env=env, stdout=subprocess.PIPE, text=True)
        for row in json.loads(done.stdout):
            del row["passed"]
            rows.append(Row(**row))
    return rows


def main() -> int:
    """Exit 0 where every bar holds, 1 where one is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--commit", default=commit(), help="which code this is (default: asked of git)")
    asked = parser.parse_args()
    rows = run(asked.device)
    for row in rows:
        print(f"{row.work}: {row.measure} {row.value:,.4g} {row.unit}{'' if row.passed is not False else ' (missed)'}")
    if asked.json is not None:
        record = {
            "command": f"python -m benchmarks.serving --device {asked.device}",
            "commit": asked.commit,
            "device": torch.cuda.get_device_name() if asked.device == "cuda" else "one thread of a CPU",
            "python": platform.python_version(),
            "machine": platform.machine(),
            "versions": {"negwise": negwise.__version__, **{name: version(name) for name in ("numpy", "torch")}},
            "rows": {"serving": [row.to_dict() for row in rows]},
        }
        write_atomically(asked.json, json.dumps(record, indent=1) + "\n")
    return 0 if all(row.passed is not False for row in rows) else 1


def commit() -> str:
    """The commit of this code, and whether anything was changed since."""
    try:
        words = {"head": ["rev-parse", "--short", "HEAD"], "changed": ["status", "--porcelain", "-uno"]}
        here = Path(__file__).parent
        said = {
            name: subprocess.run(["git", *line], cwd=here, check=True, capture_output=True, text=True).stdout.strip()
            for name, line in words.items()
        }
    except (OSError, subprocess.CalledProcessError):
        return "not known"
    return said["head"] + (", changed" if said["changed"] else "")


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
    else:
        calls["torch, large blocks"] = lambda: torch_lines(queries, items, LARGE_BLOCK)
    extra, whole = peaks_mb(calls["ours"], device)  # before the others take memory
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
        *memory_rows(work, extra, whole),
    ]


def recommend_rows(device: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        histories = write_recommender(Path(folder))
        model: Any = load(folder)
    users = [f"user {number}" for number in range(USERS_N)]
    extra, whole = peaks_mb(lambda: model.recommend(users, n=N, device=device), device)
    network = model.network.to(device)
    table = network.table.contiguous()

    def lines(block: int = BLOCK) -> Tensor:
        found = []
        with torch.no_grad():
            for start in range(0, USERS_N, block):
                seen = torch.from_numpy(histories[start : start + block]).to(device)
                query = Query(seen, torch.ones_like(seen, dtype=torch.bool), seen[:, 0])
                scores = network.encode_queries(query, lambda ids: table[ids]) @ table.T
                found.append(scores.scatter_(1, seen, -torch.inf).topk(N, dim=1).indices)
        return torch.cat(found)

    calls: dict[str, Callable[[], Any]] = {"ours": lambda: model.recommend(users, n=N, device=device), "torch": lines}
    if device != "cpu":
        calls["torch, large blocks"] = lambda: lines(LARGE_BLOCK)
    assert np.mean(calls["ours"]().ids == lines().cpu().numpy()) > 0.999  # rounding may swap near ties
    spent = seconds({name: waiting(call, device) for name, call in calls.items()}, REPEATS)
    fastest = min(value for name, value in spent.items() if name != "ours")
    work = f"recommend for {USERS_N:,} users of {HISTORY} items, {device}"
    return [
        Row(work, "torch lines / ours", fastest / spent["ours"], 1.0),
        *(Row(work, f"{name}, whole", value, unit="s", better="lower") for name, value in spent.items()),
        *memory_rows(work, extra, whole),
    ]


def encode_rows(device: str) -> list[Row]:
    rows = []
    rng = np.random.default_rng(0)
    count = TEXTS[device]
    texts = [" ".join(f"w{n}" for n in rng.integers(0, VOCABULARY, rng.integers(5, WORDS))) for _ in range(count)]
    for name in ("siamese-cnn", "siamese-lstm", "siamese-transformer", "nrms"):
        with tempfile.TemporaryDirectory() as folder:
            write_text_model(Path(folder), name)
            model: Any = load(folder)
        tokenizer = model.reader.tokenizer if name == "nrms" else model.tokenizer
        tokens = torch.from_numpy(tokenizer.encode(texts, WORDS)).to(device)
        network = model.network.to(device)
        encode = network.encode_news if name == "nrms" else lambda part, own=network: own.encode_texts(part, "right")

        def forward(encode: Any = encode, tokens: Tensor = tokens) -> Tensor:
            with torch.no_grad():
                return torch.cat([encode(part) for part in torch.split(tokens, 1024)])

        def whole(model: Any = model) -> Any:
            return model.encode(texts, device=device, batch_size=1024)

        assert np.allclose(forward().cpu().numpy(), whole(), atol=1e-4)
        calls = {"forward": waiting(forward, device), "whole": waiting(whole, device)}
        calls["words"] = partial(tokenizer.encode, texts, WORDS)
        spent = seconds(calls, REPEATS)
        work = f"encode {count:,} {'titles' if name == 'nrms' else 'texts'}, {name}, {device}"
        rows += [
            Row(work, "throughput beside the forward pass alone", spent["forward"] / spent["whole"], 0.9),
            Row(work, "texts a second", count / spent["whole"], unit="/s"),
            Row(work, "texts a second, cut into words alone", count / spent["words"], unit="/s"),
        ]
    return rows


def memory_rows(work: str, extra: float, whole: float | None) -> list[Row]:
    rows = [Row(work, "peak memory of ours", extra, MEMORY_MB, "lower", "MB")]
    if whole is not None:
        rows.append(Row(work, "peak memory of the process, with torch", whole, MEMORY_MB, "lower", "MB"))
    return rows


def peaks_mb(call: Callable[[], object], device: str) -> tuple[float, float | None]:
    """Peak memory in MB: during ``call`` above what was held before it, and of the whole process so far.

    On a GPU the first is the GPU's, and there is no second.
    """
    if device == "cpu":
        extra = peak_extra_mb(call)
        highest = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return extra, int(highest.split()[1]) * 1024 / 1e6
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6, None


def torch_lines(queries: Tensor, items: Tensor, block: int = BLOCK) -> Tensor:
    return torch.cat([(part @ items.T).topk(N, dim=1).indices for part in torch.split(queries, block)])


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
    """An exported model of texts, or of titles of news, of random weights, with its default settings."""
    words = ("<pad>", "<unk>", *(f"w{number}" for number in range(VOCABULARY)))
    nothing = np.zeros((1, 1), np.int64)
    news = name == "nrms"
    content = {"title": nothing} if news else {"left": nothing, "right": nothing}
    torch.manual_seed(0)
    network = build(name, {**content, "n_words": len(words)})
    lengths, sizes = {"title": WORDS, "body": WORDS}, {"n_items": 1, "n_users": 1, "n_words": len(words)}
    record = ModelRecord(name, "impressions" if news else "pairs", {}, sizes, lengths, 1, "hit@5", "4")
    files = {TOKENIZER: WordTokenizer(words).to_json()}
    if news:
        files[ITEMS] = arrow_file({"id": ["news"], "title": as_lists(Ragged.of([[2]]))})
    _write(folder, record, network, files)


def _write(folder: Path, record: ModelRecord, network: Any, files: dict[str, bytes]) -> None:
    weights = {"weights.safetensors": save(network.state_dict())}
    for name, content in with_manifest(record, files | weights).items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    raise SystemExit(main())
