"""Training figures from one GPU: ``NEGWISE_DATA=... python -m benchmarks.h200 OUT.json [seconds]``.

NRMS training (batch 512, bf16, K = 4, MIND's sample), beside the same model with the title of every slot encoded; the
evaluation of 73,000 impressions; BERT4Rec on ML-1M, trained for so many seconds (200 unless said), judged by full
ranking and against 100 negatives drawn by popularity.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import training
from negwise.data import Ragged, Task
from negwise.draws import Key
from negwise.experiments.training import Parts, Training, make_parts
from negwise.files import write_atomically
from negwise.models import build
from negwise.protocols import Negatives, Query
from negwise.records import read_run
from negwise.samplers import Exclusions, Lists, Popularity
from negwise.schedule import ConstantK
from negwise.train import Settings, Shown, evaluate, fit, judged
from negwise.train.step import Asked, Step

DATA = Path(os.environ.get("NEGWISE_DATA", "data"))
CUDA = torch.device("cuda")


def timed(call: Callable[[], object], repeats: int = 30, warmup: int = 5) -> float:
    """Median seconds of a call, by events."""
    spent = []
    for turn in range(repeats + warmup):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if turn >= warmup:
            spent.append(begin.elapsed_time(end) / 1e3)
    return float(np.median(spent))


def nrms() -> dict[str, float]:
    """Whole steps (forward, backward, Adam) on fixed batches: distinct news against every slot."""
    found: dict[str, float] = {}
    for batch in (32, 512):
        given = training.feed(batch)
        negatives = Negatives(given.negatives.ids.to(CUDA), given.negatives.mask.to(CUDA))
        here = training.Feed(
            given.query.to(CUDA), given.positives.to(CUDA), negatives, given.titles, given.n_words, given.real
        )
        ours, theirs = training.nrms(given).to(CUDA), training.nrms(given).to(CUDA)
        step = Step(ours, len(given.titles))

        def learn(model: Any, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
            adam = torch.optim.Adam(model.parameters(), 1e-4, fused=True)

            def once() -> None:
                with torch.autocast("cuda", torch.bfloat16):
                    value = loss()
                adam.zero_grad()
                value.backward()  # type: ignore[no-untyped-call]
                adam.step()

            return once

        fast = timed(learn(ours, lambda: step(Asked(here.query, here.positives, here.negatives))[0].mean()))  # noqa: B023
        slow = timed(learn(theirs, lambda: training.usual(theirs, here)))  # noqa: B023
        found |= {f"samples/s, batch {batch}": batch / fast, f"ratio to every slot, batch {batch}": slow / fast}
    return found


def loop_rate(parts: Parts, batch: int, steps: int) -> float:
    """Samples per second of the whole loop, negatives and log included, from its own clock."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            steps=steps, batch_size=batch, precision="bf16-mixed", log_every=steps // 4, eval_every=steps
        )
        fit(
            folder, parts.model, parts.examples, n_items=parts.task.n_items, sampler=parts.sampler,
            rule=ConstantK(4), settings=settings, hide=parts.hide, show=False,
        )  # fmt: skip
        rows = [json.loads(line) for line in (Path(folder) / "run.jsonl").read_text().splitlines()]
    logged = [row for row in rows if row["kind"] == "step"]
    return batch * (logged[-1]["step"] - logged[0]["step"]) / (logged[-1]["time"] - logged[0]["time"])


def evaluation(parts: Parts, impressions: int = 73_000) -> float:
    """Seconds to encode all news and to rank so many impressions, those of the sample over and over."""
    model = parts.model.to(CUDA)
    split = judged(parts.task)["val"]
    times = -(-impressions // len(split.chosen))
    changes = {name: np.tile(getattr(split, name), times)[:impressions] for name in ("chosen", "groups")}
    many = type(split)(**{**vars(split), **changes})
    evaluate(model, split)
    torch.cuda.synchronize()
    start = time.perf_counter()
    evaluate(model, many)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def bert4rec(
    seconds: float, batch: int = 256, k: float = 100.0, rate: float = 1e-3, alpha: float = 0.5
) -> dict[str, Any]:
    """Train for ``seconds``; the number of steps comes from timing the first ones.

    Width 128 (4 heads of 32), where the paper has 64. Negatives are drawn by popularity ** ``alpha``: what
    is told from popular negatives in training is told from them in the test. The curve is the test items against 100
    popular negatives at ten moments, for the time that a quality takes, and chooses nothing.
    """
    parts = make_parts(Training(data=str(DATA / "ml-1m" / "ml-1m_sas.txt.xz"), model="bert4rec", k=str(k)))
    task = parts.task
    sampler = Popularity(torch.from_numpy(task.popularity), alpha=alpha, exclude=_exclusions(task.known, task.n_items))
    among = popular(task)

    def fresh() -> Parts:
        torch.manual_seed(0)
        model = build("bert4rec", task.content(), max_len=task.train.places, heads=4, head_dim=32)
        return replace(parts, model=model, hide=model.cloze, sampler=sampler)

    def go(parts: Parts, folder: str, steps: int, judges: dict[str, Any]) -> None:
        settings = Settings(
            steps=steps, batch_size=batch, precision="bf16-mixed", log_every=max(1, steps // 50),
            eval_every=max(1, steps // 10),
        )  # fmt: skip
        fit(
            folder, parts.model, parts.examples, n_items=task.n_items, sampler=parts.sampler, rule=ConstantK(k),
            settings=settings, judged=judges, hide=parts.hide, show=False,
            optimizer=lambda weights: torch.optim.Adam(weights, rate, fused=True),
            lr_scale=lambda done: min(1.0, done / 0.03) * 0.5 * (1 + math.cos(math.pi * done)),
        )  # fmt: skip

    trained = fresh()
    with tempfile.TemporaryDirectory() as folder:
        go(trained, folder, 40, {})
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        go(trained, folder, 200, {})
        pace = (time.perf_counter() - start) / 200
    steps = int(seconds / pace)
    trained = fresh()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        go(trained, folder, steps, {"val": among})
        spent = time.perf_counter() - start
        log = read_run(folder)
    clock = {record["step"]: record["time"] for record in log.steps}
    return {
        "steps": steps,
        "batch": batch,
        "k": k,
        "alpha": alpha,
        "width": 128,
        "learning rate": rate,
        "ms a step": 1e3 * pace,
        "seconds": spent,
        "curve: s, nDCG@10 among 100 popular": [
            [clock[record["step"]], record["metrics"]["ndcg@10"]] for record in log.of_split("val") if record["step"]
        ],
        "full ranking, last weights": evaluate(trained.model.eval(), judged(task)["test"]).record(),
        "100 popular negatives, last weights": evaluate(trained.model.eval(), among).record(),
    }


def _exclusions(known: Ragged, n_items: int) -> Exclusions:
    return Exclusions.of(Lists(torch.from_numpy(known.offsets), torch.from_numpy(known.ids)), n_items)


def popular(task: Task, negatives: int = 100) -> Shown:
    """The test items, each among itself and 100 negatives drawn by popularity, none of them known to the user."""
    sampler = Popularity(torch.from_numpy(task.popularity), alpha=1.0, exclude=_exclusions(task.seen, task.n_items))
    every = np.arange(len(task.test))
    _, positives, groups = task.test.batch(every)
    drawn = sampler(positives, negatives, Key(0, 0), owner=groups).ids
    shown = torch.cat([positives[:, None], drawn], 1).numpy()
    labels = np.zeros(shown.shape, np.int8)
    labels[:, 0] = 1
    offsets = np.arange(len(shown) + 1) * shown.shape[1]
    return Shown(_Numbered(task.test), every, every, Ragged(offsets, shown.ravel()), labels.ravel())


@dataclass(frozen=True)
class _Numbered:
    """Examples whose groups are their own numbers."""

    examples: Any

    def __len__(self) -> int:
        return len(self.examples)

    def batch(self, indices: Any, /) -> tuple[Query, torch.Tensor, torch.Tensor]:
        query, positives, _ = self.examples.batch(indices)
        return query, positives, torch.from_numpy(np.asarray(indices, np.int64))


def main() -> None:
    out, seconds = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 200.0
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}

    def keep(name: str, value: Any) -> None:
        found[name] = value
        print(name, value, flush=True)
        write_atomically(out, json.dumps(found, indent=1) + "\n")

    keep("BERT4Rec", bert4rec(seconds))
    keep("NRMS step", nrms())
    news = make_parts(Training(data=str(DATA / "mind"), model="nrms", split="user"))
    keep("NRMS loop, batch 512, samples/s", loop_rate(news, 512, 200))
    keep("evaluation of 73,000 impressions, s", evaluation(news))


if __name__ == "__main__":
    main()
