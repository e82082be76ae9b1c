"""How fast this machine trains and judges a model: a few real steps, and one real evaluation of each split."""

from __future__ import annotations

import itertools
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from negwise.jobs.plan import Pace
from negwise.jobs.training import Parts, Training, fit_parts, make_parts
from negwise.records import read_run
from negwise.training import EvaluationSplit, evaluate, judged


def measure(training: Training, steps: int) -> Pace:
    """Seconds of a step as ``training`` has it and with K = 1 (medians), and of judging one split and both."""
    parts = make_parts(training)
    step, pilot_step = (_step(replace(training, k=k), parts, steps) for k in (training.k, "1"))
    splits = judged(parts.task, training.queries)
    val, train = (_seconds(parts.model, splits[name]) for name in ("val", "train"))
    return Pace(step=step, evaluation=val, pilot_step=pilot_step, pilot_evaluation=val + train)


def _step(training: Training, parts: Parts, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        fit_parts(replace(training, steps=steps, eval_every=steps), parts, Path(folder), splits={}, show=False)
        times = [record["time"] for record in read_run(folder).steps]
    spent = [after - before for before, after in itertools.pairwise(times)]
    # The second half: on a GPU the first steps of each size compile and record.
    return median(spent[len(spent) // 2 :])


def _seconds(model: object, split: EvaluationSplit) -> float:
    began = time.perf_counter()
    evaluate(model, split)
    return time.perf_counter() - began
