"""What a run is made of beside its parts: plain values, written to config.json and compared when it resumes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from negwise.errors import InputError

PRECISIONS = ("32-true", "bf16-mixed", "64-true")  # float16 would need a loss scale, one more thing to save
EVALUATIONS = 20
"""Evaluations of a run unless it says how often."""


@dataclass(frozen=True)
class Settings:
    """``steps`` updates on global batches of ``batch_size`` examples.

    ``eval_every``, ``save_every`` and ``log_every`` count steps. None evaluates 20 times, and saves where it evaluates.
    ``correct`` corrects the loss by the sampler's ``log_q``. ``lag`` is how many steps old the counts are that a
    closed-loop rule sees. ``threads`` None takes torch's number, and on resuming the one that the run began with.
    ``device``: "auto", "cpu" or "cuda". ``graphs``: on one GPU, record a step once for each of a few sizes and replay
    it (`negwise.training.cuda_graphs`); None: where that is possible.
    """

    steps: int
    batch_size: int
    seed: int = 0
    eval_every: int | None = None
    save_every: int | None = None
    log_every: int = 1
    correct: bool = False
    lag: int = 8
    precision: str = "32-true"
    device: str = "auto"
    threads: int | None = None
    tensorboard: bool = False
    graphs: bool | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "eval_every", "save_every", "log_every", "lag", "threads"):
            value = getattr(self, name)
            optional = value is None and name in ("eval_every", "save_every", "threads")
            if not optional and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name}={value!r}, expected a whole number from 1")
        if self.graphs is not None and not isinstance(self.graphs, bool):
            raise InputError(f"graphs={self.graphs!r}, expected True, False or None, which takes them where it can")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed={self.seed!r}, expected a whole number from 0")
        for name, choices in (("precision", PRECISIONS), ("device", ("auto", "cpu", "cuda"))):
            if getattr(self, name) not in choices:
                raise InputError(f"{name}={getattr(self, name)!r}, expected one of {', '.join(choices)}")

    @property
    def evaluates_every(self) -> int:
        return self.eval_every or -(-self.steps // EVALUATIONS)

    def evaluates(self, step: int) -> bool:
        """Whether an evaluation follows ``step`` updates: at the start, at the end and in between."""
        return step % self.evaluates_every == 0 or step == self.steps

    def saves(self, step: int) -> bool:
        """Whether a checkpoint follows ``step`` updates; where an evaluation is due, that one saves."""
        return not self.evaluates(step) and self.save_every is not None and step % self.save_every == 0

    def logs(self, step: int) -> bool:
        """Whether the record of the steps since the last one is due: no record spans a checkpoint."""
        return step % self.log_every == 0 or self.evaluates(step) or self.saves(step)

    def config(self, closed_loop: bool = False) -> dict[str, Any]:
        """What may not change within a run: all that its numbers depend on, save the number of threads."""
        free = {"device", "threads", "tensorboard", "log_every", "save_every"}
        if not self.graphs:  # what a run began with is in its checkpoints
            free.add("graphs")
        if not closed_loop:
            free.add("lag")
        return {name: value for name, value in asdict(self).items() if name not in free}
