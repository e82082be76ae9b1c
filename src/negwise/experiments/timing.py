"""How fast this machine trains and judges a model: a few real steps, and one real evaluation of each split."""

from __future__ import annotations

import itertools
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from negwise.experiments.plan import Pace
from negwise.experiments.training import Training, fit_parts, make_parts
from negwise.records import read_run
from negwise.train import Judged, evaluate, judged


def measure(training: Training, steps: int) -> Pace:
    """Seconds of a step (the median), of judging the validation split, and of judging both splits."""
    parts = make_parts(training)
    with tempfile.TemporaryDirectory() as folder:
        fit_parts(replace(training, steps=steps, eval_every=steps), parts, Path(folder), splits={}, show=False)
        times = [record["time"] for record in read_run(folder).steps]
    splits = judged(parts.task, training.queries)
    val, train = (_seconds(parts.model, splits[name]) for name in ("val", "train"))
    spent = [after - before for before, after in itertools.pairwise(times)]
    # The second half: on a GPU the first steps of each size compile and record.
    return Pace(median(spent[len(spent) // 2 :]), val, val + train)


def _seconds(model: object, split: Judged) -> float:
    began = time.perf_counter()
    evaluate(model, split)
    return time.perf_counter() - began
