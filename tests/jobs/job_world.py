"""What tests of jobs share: results of runs as records, and a clock that other work on the machine does not move."""

import time
from types import SimpleNamespace

from negwise.jobs import main_job, race_plan, step_timing
from negwise.records import BestStep, RunResult, Scores
from negwise.training import loop

LOOK_AT_THE_CLOCK = (loop, step_timing, race_plan, main_job)
COMPUTED = SimpleNamespace(monotonic=time.process_time, perf_counter=time.process_time)
"""In the place of `time`: seconds that this process computed, so that nobody else uses up its budget."""


def finished(auc, steps=8, seconds=1.0):
    """The result of a run whose validation and test AUC are ``auc``."""
    scores = Scores(auc, metrics={"hit@5": auc / 2})
    return RunResult(
        steps=steps, best=BestStep(steps, auc), evaluations={"val": scores, "test": scores},
        weights=f"checkpoints/{steps}", parameters=1, seconds=seconds, device="cpu", precision="32-true",
        graphs=False, threads=1, processes=1,
    )  # fmt: skip
