"""The records of a job: ``job.json`` (what was asked, and the plan), ``results.json``, ``failed.json`` of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from negwise.records.decoding import FORMAT
from negwise.records.run_records import Recommended, Scores

JOB, ESTIMATE, RESULTS, FAILED = "job.json", "estimate.json", "results.json", "failed.json"
State = Literal["done", "failed", "waiting"]


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a training step and of an evaluation on this machine.

    ``step`` has K = ``k``. ``pilot_step`` has K = 1, and ``pilot_evaluation`` is one of both splits, as a pilot has
    them. ``epoch`` is the number of steps in an epoch. ``max_k`` is the largest K that fits into memory, where ``k``
    had to be lowered for it.
    """

    step: float
    evaluation: float
    pilot_step: float
    pilot_evaluation: float
    k: float = 20.0
    epoch: int = 0
    max_k: int | None = None


@dataclass(frozen=True)
class StepCost:
    """Seconds of a step with ``k`` negatives."""

    k: float
    seconds: float


@dataclass(frozen=True)
class RunLengths:
    """Steps of the pilot at most and between its evaluations, steps of every other run, seconds for all of it, and
    the number of runs at a time that this counts on."""

    pilot_steps: int
    pilot_eval_every: int
    steps: int
    seconds: float
    jobs: int


@dataclass(frozen=True)
class Start:
    """The older model that training starts from: its ``folder``, and the ``digest`` of its weights.

    ``goes_on``: it is what this very job came to in ``seconds``, before it got more time.
    """

    folder: str
    digest: str
    seconds: float = 0.0
    goes_on: bool = False


@dataclass(frozen=True)
class Plan:
    """What a job will do: how long each run is, how fast this machine is, and what every run shares.

    ``costs``: a step at several K. ``val_queries`` and ``test_queries``: how many are evaluated where all would take
    more than their share of the time. ``start``: None where weights are drawn at random.
    """

    lengths: RunLengths
    times: StepTimes
    spent: float
    threads: int
    training: dict[str, Any]
    notes: tuple[str, ...] = ()
    costs: tuple[StepCost, ...] = ()
    val_queries: int | None = None
    test_queries: int | None = None
    start: Start | None = None


@dataclass(frozen=True)
class JobRecord:
    """``job.json``, written before anything is trained."""

    kind: Literal["run", "sweep"]
    request: dict[str, Any]
    data: dict[str, Any]
    machine: dict[str, Any]
    plan: Plan
    negwise: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT


@dataclass(frozen=True)
class Failure:
    """``failed.json`` of a run. ``wrong_request``: trying again changes nothing."""

    error: str
    wrong_request: bool = False
    traceback: str | None = None


@dataclass(frozen=True)
class TunedRate:
    """A learning rate that was tried for an arm, on one seed."""

    learning_rate: float
    run: str
    state: State
    val_auc: float | None = None
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class SeedResult:
    """One seed of an arm; ``run`` is its folder inside the job's."""

    seed: int
    run: str
    state: State
    error: str | None = None
    steps: int | None = None
    seconds: float | None = None
    best_step: int | None = None
    val: Scores | None = None
    test: Scores | None = None
    recommended: Recommended | None = None


@dataclass(frozen=True)
class ArmResult:
    """One way to train, over seeds. ``k`` is the peak of ``rule``; ``role`` says what the arm is there for."""

    name: str
    rule: str
    k: float | None
    role: str | None
    uses_pilot: bool
    learning_rate: float | None
    tuning: tuple[TunedRate, ...]
    seeds: tuple[SeedResult, ...]

    @property
    def done(self) -> tuple[SeedResult, ...]:
        return tuple(seed for seed in self.seeds if seed.state == "done")


@dataclass(frozen=True)
class Difference:
    """An arm against another in one metric, paired over seeds, with its 95% interval."""

    arm: str
    against: str
    metric: str
    seeds: int
    mean: float | None = None
    se: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class QueryDifference:
    """The model less a baseline in ``metric``: the mean over ``queries``, paired by query, with its 95% interval.

    ``se``, ``low`` and ``high`` are None with fewer than two queries.
    """

    metric: str
    mean: float
    se: float | None
    low: float | None
    high: float | None
    queries: int


@dataclass(frozen=True)
class Baseline:
    """A ranking that the model is compared with, on the queries and candidates of the test split.

    It needs no training, unless it is ``trained``: another K, whose last value is ``k``, in ``seconds``. ``corpus`` are
    its scores among every text of the data, for text pairs.
    """

    name: str
    scores: Scores
    differences: tuple[QueryDifference, ...]
    corpus: Scores | None = None
    trained: bool = False
    k: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class CorpusScores:
    """The scores of the model among all ``candidates`` texts of the data, for the queries of the test split."""

    candidates: int
    scores: Scores


@dataclass(frozen=True)
class GainShare:
    """The forecast share of the gain at K = ``k``, and the ``seconds`` of a step with it; None where not known.

    ``low`` and ``high`` are the error of such forecasts. ``all`` marks the most negatives that there are, ``own`` the K
    that the model had at the end of training, and ``interpolated`` seconds that lie between those of two K that were
    timed.
    """

    k: float
    metric: str
    share: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    all: bool = False
    interpolated: bool = False
    own: bool = False


@dataclass(frozen=True)
class PilotResult:
    """The run with K = 1 that an estimate rests on."""

    run: str
    steps: int | None = None
    seconds: float | None = None
    converged: bool | None = None
    why: str | None = None
    val_auc: float | None = None


@dataclass(frozen=True)
class Decision:
    """A decision of a race: at ``step``, by ``metric``, which candidates went on and which were dropped, and why.

    ``joined`` take part from here on. ``untried`` is the learning rate beyond that of the winner, where the winner's is
    the highest or the lowest that was raced and clearly ahead.
    """

    step: int
    metric: str
    values: dict[str, float]
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    reason: str
    joined: tuple[str, ...] = ()
    untried: float | None = None


@dataclass(frozen=True)
class TrainingEnd:
    """Where training of the model ended before its time was spent: at ``step`` of the ``planned`` steps.

    ``why``: "level", its metric no longer rose; or "epochs", the recipe ended. ``seconds_left`` of the ``budget`` that
    was typed were not used; both are None without one.
    """

    step: int
    planned: int
    why: Literal["level", "epochs"]
    seconds_left: float | None = None
    budget: str | None = None


@dataclass(frozen=True)
class Results:
    """``results.json``, of a job that may be half done. ``model`` is the folder of the run that is kept.

    ``baselines``, ``corpus`` and ``candidates``, the number that a test query is ranked among on average, are those of
    the model that is kept. ``seconds`` is the wall time of the whole job, from the command to the page, and
    ``seconds_by_use`` has what they went into. ``end`` is None where training took the time that there was.
    """

    kind: Literal["run", "sweep"]
    arms: tuple[ArmResult, ...]
    metrics: tuple[str, ...]
    pilot: PilotResult | None = None
    chosen: str | None = None
    model: str | None = None
    differences: tuple[Difference, ...] = ()
    decisions: tuple[Decision, ...] = ()
    caveats: tuple[str, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    corpus: CorpusScores | None = None
    candidates: float | None = None
    shares: tuple[GainShare, ...] = ()
    seconds: float | None = None
    end: TrainingEnd | None = None
    seconds_by_use: dict[str, float] = field(default_factory=dict)
    format: int = FORMAT
