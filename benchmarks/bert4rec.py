"""BERT4Rec on ML-1M on one GPU: its step, its step as K grows, and the time it takes to a quality.

Width 128 (4 heads of 32), where the paper has 64; batch 256; Adam 1e-3 with a cosine; bfloat16. Times are the loop's
own, everything in them: negatives, the log, the copies to the GPU. ``TINY`` is a toy of the same making, for a CPU.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import data
from benchmarks.cases import Found, bar
from negwise.datasets import Ragged, TaskData
from negwise.draws import Key
from negwise.metrics.model_ranking import ImpressionRanking
from negwise.models import build
from negwise.protocols import Query
from negwise.records import RunLog, read_run
from negwise.requests import TrainRequest
from negwise.samplers import Exclusions, Lists, Popularity
from negwise.schedule import ConstantK
from negwise.tasks import evaluate_model, evaluation_splits, make_task
from negwise.training import Settings, fit

TARGET = 0.4818
GROWTH = (1, 4, 16, 64, 256, 1024)


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    batch: int
    heads: int
    head_dim: int
    precision: str
    steps: int  # that are timed
    warm: int  # before them
    window: int  # that one time is the mean of
    growth: tuple[int, ...]
    k: float
    target: float
    data: Callable[[Path], Path]  # a folder for what has to be made -> the file


def ml_1m(folder: Path) -> Path:
    del folder
    return data.need("ml-1m/ml-1m_sas.txt.xz")


def toy(folder: Path) -> Path:
    """Sixty users, forty items, twelve clicks each."""
    rng = np.random.default_rng(0)
    rows = [f"{user} {item}" for user in range(1, 61) for item in rng.permutation(40)[:12] + 1]
    path = folder / "toy_sas.txt"
    path.write_text("\n".join(rows) + "\n")
    return path


FULL = Scale(256, 4, 32, "bf16-mixed", 120, 60, 20, GROWTH, 100.0, TARGET, ml_1m)
TINY = Scale(16, 1, 8, "32-true", 4, 2, 2, (1, 4), 5.0, 0.01, toy)


@dataclass(frozen=True, eq=False)
class Setup:
    """The task and what makes runs on it; ``popular`` is the test items, each among 100 popular negatives."""

    scale: Scale
    task: TaskData
    examples: Any
    sampler: Any
    popular: ImpressionRanking
    device: str

    @classmethod
    @cache
    def of(cls, scale: Scale, device: torch.device, alpha: float = 0.5, negatives: int = 100) -> Setup:
        """Negatives are drawn by popularity ** ``alpha``: what is told from popular ones in training is in the test."""
        with tempfile.TemporaryDirectory() as folder:
            path = scale.data(Path(folder))
            made = make_task(TrainRequest(data=str(path), model="bert4rec", k=str(scale.k), device=device.type))
        task = made.data
        exclude = exclusions(task.train_exclusions, task.n_items)
        sampler = Popularity(torch.from_numpy(task.popularity), alpha=alpha, exclude=exclude)
        shown = popular(task, min(negatives, task.n_items // 3))
        return cls(scale, task, made.examples, sampler, shown, device.type)

    def model(self) -> Any:
        torch.manual_seed(0)
        scale, task = self.scale, self.task
        places = task.train.max_length
        return build("bert4rec", {"n_items": task.n_items}, max_len=places, heads=scale.heads, head_dim=scale.head_dim)

    def fit(
        self, folder: str, model: Any, steps: int, *, k: float, log_every: int, eval_every: int,
        splits: dict[str, Any] | None = None, should_stop: Callable[[RunLog], bool] | None = None, rate: float = 1e-3,
        options: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        settings = Settings(
            steps=steps, batch_size=self.scale.batch, precision=self.scale.precision, log_every=log_every,
            eval_every=eval_every, device=self.device, **(options or {}),
        )  # fmt: skip
        fit(
            folder, model, self.examples, n_items=self.task.n_items, sampler=self.sampler, rule=ConstantK(k),
            settings=settings, splits=splits, mask_items=model.mask_items, show=False, should_stop=should_stop,
            optimizer=lambda weights: torch.optim.Adam(weights, rate, fused=self.device == "cuda" or None),
            lr_scale=lambda done: min(1.0, done / 0.03) * 0.5 * (1 + math.cos(math.pi * done)),
        )  # fmt: skip

    def step_ms(self, k: float, options: dict[str, Any]) -> Found:
        """Milliseconds of a step: the median over windows of steps, from the loop's clock, after the first ones."""
        scale = self.scale
        steps = scale.warm + scale.steps
        with tempfile.TemporaryDirectory() as folder:
            self.fit(
                folder, self.model(), steps, k=k, log_every=scale.window, eval_every=steps, options=options
            )  # fmt: skip
            rows = [json.loads(line) for line in (Path(folder) / "run.jsonl").read_text().splitlines()]
        clock = [(row["step"], row["time"]) for row in rows if row["kind"] == "step" and row["step"] >= scale.warm]
        spent = [1e3 * (end - begin) / (last - first) for (first, begin), (last, end) in pairwise(clock)]
        return {"ms": median(spent), "windows_ms": spent}


def options(device: torch.device, on: bool) -> dict[str, Any]:
    """The options of `Settings` that make a step fast, on or off. On a CPU they are refused, so there none is on."""
    return {"graphs": on and device.type == "cuda"}


def working(setup: Setup, device: torch.device) -> tuple[dict[str, Any], Found]:
    """The fast options, tried once; where they fail, the plain ones, and a note that says so."""
    fast = options(device, True)
    try:
        setup.step_ms(setup.scale.k, fast)
    except Exception as error:
        return options(device, False), {"fast options failed": f"{type(error).__name__}: {error}"[:500]}
    return fast, {}


def step_case(scale: Scale, device: torch.device) -> Found:
    """A step with the options that make it fast, and without them."""
    setup = Setup.of(scale, device)
    slow = options(device, False)
    found: Found = {"k": scale.k, "batch": scale.batch, "without them": setup.step_ms(scale.k, slow)}
    fast, note = working(setup, device)
    found |= {"options": fast} | note
    gained = None
    if not note:
        found["with them"] = setup.step_ms(scale.k, fast)
        gained = found["without them"]["ms"] / found["with them"]["ms"]
    return found | {"bars": [bar("against our own plain step", gained, 2.0)]}


def growth_case(scale: Scale, device: torch.device) -> Found:
    """A step at each K, with the fast options."""
    setup = Setup.of(scale, device)
    fast, note = working(setup, device)
    spent = {str(k): setup.step_ms(float(k), fast) for k in scale.growth}
    first, last = (spent[str(k)]["ms"] for k in (scale.growth[0], scale.growth[-1]))
    held = bar(f"growth from K = {scale.growth[0]} to {scale.growth[-1]}", 100 * (last / first - 1), 15.0, "lower", "%")
    return {"batch": scale.batch, "options": fast, **note, "by k": spent, "bars": [held]}


def kernels_case(scale: Scale, device: torch.device, longest: int = 32) -> Found:
    """Where the time of a step goes: its kernels (on a CPU: operators) by torch's profiler, at two K."""
    setup = Setup.of(scale, device)
    fast, found = working(setup, device)
    gpu = device.type == "cuda"
    for k in (scale.k, scale.growth[-1]):
        with (
            tempfile.TemporaryDirectory() as folder,
            profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as profiled,
        ):
            setup.fit(
                folder, setup.model(), scale.steps, k=k, log_every=scale.steps, eval_every=scale.steps, options=fast
            )  # fmt: skip
        spent = {
            each.key: ((each.self_device_time_total if gpu else each.self_cpu_time_total) / 1e3, each.count)
            for each in profiled.key_averages()
        }
        first = sorted(spent, key=lambda name: -spent[name][0])[:longest]
        found[f"K = {k:g}"] = {
            "ms a step": sum(ms for ms, _ in spent.values()) / scale.steps,
            "longest: ms a step, launches a step": {
                name[:90]: [spent[name][0] / scale.steps, spent[name][1] / scale.steps] for name in first
            },
        }
    return {"batch": scale.batch, "options": fast, **found}


def quality_case(scale: Scale, device: torch.device, seconds: float, evaluations: int = 20) -> Found:
    """Seconds until the test items, each among 100 popular negatives, have an nDCG@10 of the target.

    The schedule is as long as so many ``seconds`` allow, by the pace of the first steps; training ends at the first
    evaluation that reaches the target. Evaluations and checkpoints are in the time; reading the data and, in a run of
    its own before, compiling kernels are not. Nothing else is chosen by these evaluations: what is measured is time.
    """
    setup = Setup.of(scale, device)
    start = time.perf_counter()
    fast, note = working(setup, device)
    warm_up = time.perf_counter() - start
    pace = setup.step_ms(scale.k, fast)["ms"] / 1e3
    steps = max(evaluations, int(seconds / pace))
    reached: list[float] = []
    model = setup.model()
    start = time.perf_counter()

    def should_stop(log: RunLog) -> bool:
        last = log.of_split("val")[-1]
        if not last.step or (last.value("ndcg@10") or 0.0) < scale.target:
            return False
        reached.append(time.perf_counter() - start)
        return True

    every = max(1, steps // evaluations)
    with tempfile.TemporaryDirectory() as folder:
        setup.fit(
            folder, model, steps, k=scale.k, log_every=every, eval_every=every, splits={"val": setup.popular},
            should_stop=should_stop, options=fast,
        )  # fmt: skip
        spent = time.perf_counter() - start
        log = read_run(folder)
    clock = {record.step: record.time for record in log.steps}
    curve: list[Any] = [
        [clock[int(record.step)], record.value("ndcg@10")] for record in log.of_split("val") if record.step
    ]
    return {
        "steps": steps,
        "steps taken": max(clock),
        "batch": scale.batch,
        "k": scale.k,
        "options": fast,
        **note,
        "ms a step": 1e3 * pace,
        "warm-up s": warm_up,
        "seconds": spent,
        "seconds to the target": reached[0] if reached else None,
        "target": scale.target,
        "curve: s, nDCG@10 among 100 popular": curve,
        "full ranking, last weights": evaluate_model(model.eval(), evaluation_splits(setup.task)["test"]).record(),
        "100 popular negatives, last weights": evaluate_model(model.eval(), setup.popular).record(),
        "bars": [
            bar("nDCG@10 among 100 popular", curve[-1][1], scale.target, unit=""),
            bar("seconds to it", reached[0] if reached else None, 120.0, "lower", "s", aim=60.0),
        ],
    }


def exclusions(known: Ragged, n_items: int) -> Exclusions:
    return Exclusions.of(Lists(torch.from_numpy(known.offsets), torch.from_numpy(known.ids)), n_items)


def popular(task: TaskData, negatives: int = 100) -> ImpressionRanking:
    """The test items, each among itself and negatives drawn by popularity, none of them known to the user."""
    sampler = Popularity(
        torch.from_numpy(task.popularity), alpha=1.0, exclude=exclusions(task.eval_exclusions, task.n_items)
    )
    every = np.arange(len(task.test))
    _, positives, groups = task.test.batch(every)
    drawn = sampler(positives, negatives, Key(0, 0), owner=groups).ids
    shown = torch.cat([positives[:, None], drawn], 1).numpy()
    labels = np.zeros(shown.shape, np.int8)
    labels[:, 0] = 1
    offsets = np.arange(len(shown) + 1) * shown.shape[1]
    return ImpressionRanking(_Numbered(task.test), every, every, Ragged(offsets, shown.ravel()), labels.ravel())


@dataclass(frozen=True)
class _Numbered:
    """Examples whose groups are their own numbers."""

    examples: Any

    def __len__(self) -> int:
        return len(self.examples)

    def batch(self, indices: Any, /) -> tuple[Query, torch.Tensor, torch.Tensor]:
        query, positives, _ = self.examples.batch(indices)
        return query, positives, torch.from_numpy(np.asarray(indices, np.int64))
