"""What online K costs: ``NEGWISE_DATA=... python -m benchmarks.overhead OUT.json [steps]``; without a GPU, a toy.

BERT4Rec with `OnlineK`, beside the same K at each step replayed by an open-loop rule. Both take turns; times are the
loop's own, from its log, after the first third of the steps.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.bert4rec import FULL, TINY, Setup
from negwise.files import write_atomically
from negwise.protocols import Rule
from negwise.records import read_run
from negwise.schedule import FunctionK, OnlineK
from negwise.training import Settings, fit

TURNS = 3
MOST = 1.02


def train(setup: Setup, rule: Rule, steps: int, log_every: int) -> tuple[float, list[float]]:
    """Seconds a step after the first third, and K of each record."""
    model = setup.model()
    settings = Settings(
        steps=steps,
        batch_size=setup.scale.batch,
        precision=setup.scale.precision,
        log_every=log_every,
        eval_every=steps,
        device=setup.device,
    )
    with tempfile.TemporaryDirectory() as folder:
        fit(
            folder,
            model,
            setup.examples,
            n_items=setup.task.n_items,
            sampler=setup.sampler,
            rule=rule,
            settings=settings,
            mask_items=model.mask_items,
            optimizer=lambda weights: torch.optim.Adam(weights, 1e-3, fused=setup.device == "cuda" or None),
            show=False,
        )
        records = read_run(Path(folder)).steps
    clock = [(record.step, record.time or 0.0) for record in records if record.step >= steps // 3]
    (first, begin), (last, end) = clock[0], clock[-1]
    return (end - begin) / (last - first), [record.k or 0.0 for record in records]


def overhead(setup: Setup, steps: int) -> dict[str, Any]:
    """Time of a step with online K over that of its own path, replayed."""
    rule = OnlineK(metric="ndcg@10", candidates=setup.task.n_items, max_k=setup.task.n_items - 1)
    _, path = train(setup, rule, steps, log_every=1)
    replay = FunctionK(lambda fraction: path[round(fraction * (steps - 1))])
    every = max(steps // 30, 1)
    turns = [(train(setup, rule, steps, every)[0], train(setup, replay, steps, every)[0]) for _ in range(TURNS)]
    ratio = median(online for online, _ in turns) / median(replayed for _, replayed in turns)
    return {
        "steps": steps,
        "batch": setup.scale.batch,
        "device": torch.cuda.get_device_name() if setup.device == "cuda" else "cpu",
        "k": {str(step): round(path[step], 2) for step in range(0, steps, max(steps // 10, 1))},
        "ms": [[round(1e3 * one, 4) for one in turn] for turn in turns],
        "ratio": ratio,
        "bar": MOST,
        "passed": ratio <= MOST,
    }


def main() -> int:
    """Exit 0 where the bar holds, 1 where it is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("out", type=Path, help="the record, JSON")
    parser.add_argument("steps", type=int, nargs="?", help="steps of each run (default: 1500; 60 without a GPU)")
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    scale = FULL if device.type == "cuda" else TINY
    steps = asked.steps or (1500 if device.type == "cuda" else 60)
    cost = overhead(Setup.of(scale, device), steps)
    text = json.dumps({"command": "python -m benchmarks.overhead", "overhead": cost}, indent=1)
    write_atomically(asked.out, text + "\n")
    print(text)
    return 0 if cost["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
