"""Training figures from one GPU: ``NEGWISE_DATA=... python -m benchmarks.h200 OUT.json [seconds]``.

NRMS training (batch 512, bf16, K = 4, MIND's sample), beside the same model with the title of every slot encoded; the
evaluation of 73,000 impressions; BERT4Rec on ML-1M, trained for so many seconds (200 unless said) or until it reaches
its quality, judged by full ranking and against 100 negatives drawn by popularity.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import bert4rec, data, gpu, training
from negwise.files import write_atomically
from negwise.protocols import Negatives
from negwise.requests import TrainRequest
from negwise.schedule import ConstantK
from negwise.tasks import Task, evaluate_model, evaluation_splits, make_task
from negwise.training import Settings, fit
from negwise.training.cuda_graphs import GraphedStep
from negwise.training.forward_pass import StepInputs, TrainingStep

CUDA = torch.device("cuda")


def timed(call: gpu.Call) -> float:
    """Median seconds of a call."""
    return gpu.median_ms(call, CUDA, repeats=30) / 1e3


def nrms() -> dict[str, float]:
    """Whole steps on fixed batches: distinct news, as called and recorded, against every slot encoded."""
    found: dict[str, float] = {}
    for batch in (32, 512):
        given = training.feed(batch)
        negatives = Negatives(given.negatives.ids.to(CUDA), given.negatives.mask.to(CUDA))
        here = training.Feed(
            given.query.to(CUDA), given.positives.to(CUDA), negatives, given.titles, given.n_words, given.real
        )
        ours, again, theirs = (training.nrms(given).to(CUDA) for _ in range(3))
        inputs = StepInputs.of(
            given.query, given.positives, given.negatives, ours, len(given.titles)
        )  # the loop's, made ahead
        called, replayed = learn(ours, TrainingStep(ours)), GraphedStep(learn(again, TrainingStep(again)), CUDA)
        usual = learn(theirs, lambda _: (training.usual(theirs, here),))  # noqa: B023
        there = inputs.to(CUDA)
        spent = {"called": timed(lambda: called(there)), "recorded": timed(lambda: replayed(inputs))}  # noqa: B023
        slow = timed(lambda: usual(there))  # noqa: B023
        for name, fast in spent.items():
            found[f"samples/s, batch {batch}, {name}"] = batch / fast
            found[f"ratio to every slot, batch {batch}, {name}"] = slow / fast
    return found


def learn(model: Any, step: Callable[[StepInputs], tuple[Tensor, ...]]) -> Callable[[StepInputs], Tensor]:
    """A call that takes one step of Adam and returns the loss before it."""
    adam = torch.optim.Adam(model.parameters(), 1e-4, fused=True, capturable=True)

    def once(inputs: StepInputs) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            value = step(inputs)[0].mean()
        adam.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        adam.step()
        return value.detach()

    return once


def loop_rate(task: Task, batch: int, steps: int, graphs: bool) -> float:
    """Samples per second of the whole loop, negatives and log included, from its own clock."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            steps=steps, batch_size=batch, precision="bf16-mixed", log_every=steps // 4, eval_every=steps,
            graphs=graphs,
        )  # fmt: skip
        fit(
            folder, task.model, task.examples, n_items=task.data.n_items, sampler=task.sampler,
            rule=ConstantK(4), settings=settings, mask_items=task.mask_items, show=False,
            optimizer=lambda weights: torch.optim.Adam(weights, 1e-4, fused=True),
        )  # fmt: skip
        rows = [json.loads(line) for line in (Path(folder) / "run.jsonl").read_text().splitlines()]
    logged = [row for row in rows if row["kind"] == "step"]
    return batch * (logged[-1]["step"] - logged[0]["step"]) / (logged[-1]["time"] - logged[0]["time"])


def evaluation(task: Task, impressions: int = 73_000) -> float:
    """Seconds to encode all news and to rank so many impressions, those of the sample over and over."""
    model = task.model.to(CUDA)
    split = evaluation_splits(task.data)["val"]
    times = -(-impressions // len(split.query_examples))
    changes = {name: np.tile(getattr(split, name), times)[:impressions] for name in ("query_examples", "groups")}
    many = type(split)(**{**vars(split), **changes})
    evaluate_model(model, split)
    torch.cuda.synchronize()
    start = time.perf_counter()
    evaluate_model(model, many)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    out, seconds = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 200.0
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}

    def keep(name: str, value: Any) -> None:
        found[name] = value
        print(name, value, flush=True)
        write_atomically(out, json.dumps(found, indent=1) + "\n")

    keep("BERT4Rec", bert4rec.quality_case(bert4rec.FULL, CUDA, seconds))
    keep("NRMS step", nrms())
    news = make_task(TrainRequest(data=str(data.need("mind")), model="nrms", split="user"))
    for name, graphs in (("called", False), ("recorded", True)):
        keep(f"NRMS loop, batch 512, {name}, samples/s", loop_rate(news, 512, 200, graphs))
    keep("evaluation of 73,000 impressions, s", evaluation(news))


if __name__ == "__main__":
    main()
