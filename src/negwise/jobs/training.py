"""One training run, put together: data, model, sampler, schedule, loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise import datasets as sources
from negwise.datasets import Lengths, Ragged, SplitSizes, TaskData
from negwise.datasets.formats import EMBEDDED
from negwise.errors import InputError
from negwise.jobs.arms import arm, check_ceiling
from negwise.models import PAPER, build, load_vectors
from negwise.models.hyperparameters import BERT4REC_MAX_LENGTH
from negwise.protocols import Query, Sampler
from negwise.samplers import Exclusions, Impression, Lists, Pool, Uniform
from negwise.schedule import parse_rule
from negwise.training import Display, EpochOrder, EvaluationSplit, Settings, ShouldStop, fit, judged, load_weights
from negwise.training.run_folder import read_json

JOB = "job.json"
"""What a folder has that is a job's, and no run's."""
TASK_OF = {
    "nrms": "impressions",
    "naml": "impressions",
    "lstur": "impressions",
    "siamese-transformer": "pairs",
    "siamese-cnn": "pairs",
    "siamese-lstm": "pairs",
    "bert4rec": "sequences",
}
"""What each model learns from."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One run. None means the paper's value for the model; ``k`` is a number, ``ans:20`` or ``warm:20``.

    ``data`` is a path, or an embedded default: ``docs`` (text pairs) or ``clicks`` (impressions). ``columns`` says
    which column plays a role where names do not, as ``{"user": "customer"}``. ``pool`` candidates a step serve models
    that encode text, so that K costs no more encodings. ``title_words``, ``body_words`` and ``history`` say how much of
    a text and of a user the model sees; ``settings`` are arguments of the model, as ``{"hidden": 128}``, and ``world``
    those of the simulated clicks. With ``folds`` users or groups are dealt into so many parts, and the test split is
    the part number ``seed`` modulo ``folds``: seeds then differ in who is held out, too. ``queries``
    bounds each evaluation; without ``judge_training`` the training AUC, which only an estimate needs, is left out.
    """

    data: str
    columns: dict[str, str] = field(default_factory=dict)
    model: str
    k: str = "4"
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    seed: int = 0
    split: str | None = None
    folds: int | None = None
    pool: int = 512
    title_words: int = Lengths.title
    body_words: int = Lengths.body
    history: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    world: dict[str, Any] = field(default_factory=dict)
    vectors: str | None = None
    queries: int | None = None
    judge_training: bool = True
    eval_every: int | None = None
    skip_bad: int = 0
    precision: str = "32-true"
    device: str = "auto"
    threads: int | None = None


@dataclass(frozen=True, eq=False)
class Parts:
    """What a run is made of, beside its rule and its settings."""

    task: TaskData
    model: Any
    sampler: Sampler
    examples: Any
    mask_items: Callable[..., tuple[Query, Tensor]] | None = None


def train(
    training: Training,
    out: str | Path,
    *,
    tensorboard: bool = False,
    should_stop: ShouldStop | None = None,
    show: bool | Display = True,
    any_k: bool = False,
) -> dict[str, Any]:
    """Train in the folder ``out``; the same call again goes on, or returns the result that is there.

    A K that no row can have is refused, unless ``any_k``: then a row that has fewer negatives gives all it has.
    """
    check(training)  # before the data is read
    if (Path(out) / JOB).exists():
        raise InputError(
            f"{out}: the folder of a job (it has {JOB}), whose runs are inside. Choose another with --out."
        )
    parts = make_parts(training)
    if not any_k:
        check_ceiling(arm(training.k), most_negatives(parts.task, training.pool))
    splits = judged(parts.task, training.queries)
    if not training.judge_training:
        del splits["train"]
    return fit_parts(training, parts, out, splits=splits, tensorboard=tensorboard, should_stop=should_stop, show=show)


def check(training: Training) -> None:
    """Refuse at once what no data could make right."""
    arm(training.k)  # raises where no K can be read from it
    for name in ("steps", "epochs", "batch_size", "pool", "history", "queries", "eval_every"):
        check_count(name, getattr(training, name))
    if training.steps is not None and training.epochs is not None:
        raise InputError(f"steps={training.steps} and epochs={training.epochs}: got both, expected one of them.")
    if training.learning_rate is not None:
        check_rate(training.learning_rate)


def check_count(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise InputError(f"{name}: got {value}, expected 1 or more.")


def check_rate(rate: float) -> None:
    if not 0 < rate < math.inf:
        raise InputError(f"learning_rate: got {rate:g}, expected a number above 0, as 1e-3.")


def most_negatives(task: TaskData, pool: int) -> int:
    """How many negatives the best provided row can have, in any split."""
    if task.name == "impressions":
        return 0 if task.negatives is None else int(np.diff(task.negatives.offsets).max(initial=0))
    others = task.n_items - int(np.diff(task.eval_exclusions.offsets).min(initial=task.n_items - 1))
    return min(others, pool) if task.name == "pairs" else others


def fit_parts(
    training: Training,
    parts: Parts,
    out: str | Path,
    *,
    splits: Mapping[str, EvaluationSplit],
    tensorboard: bool = False,
    should_stop: ShouldStop | None = None,
    show: bool | Display = True,
) -> dict[str, Any]:
    """`train` with parts that are made, judged on ``splits``."""
    paper = PAPER[training.model]
    batch_size = paper.batch_size if training.batch_size is None else training.batch_size
    epochs = paper.epochs if training.epochs is None else training.epochs
    steps = training.steps
    if steps is None:
        steps = epochs * EpochOrder(len(parts.examples), batch_size, training.seed).steps_per_epoch
    rate = paper.learning_rate if training.learning_rate is None else training.learning_rate
    settings = Settings(
        steps=steps,
        batch_size=batch_size,
        seed=training.seed,
        eval_every=training.eval_every,
        log_every=max(1, steps // 1000),
        precision=training.precision,
        device=training.device,
        threads=training.threads,
        tensorboard=tensorboard,
    )
    asked = {name: value for name, value in asdict(training).items() if name not in ("device", "threads")}
    return fit(
        out,
        parts.model,
        parts.examples,
        n_items=parts.task.n_items,
        sampler=parts.sampler,
        rule=parse_rule(training.k),
        settings=settings,
        judged=splits,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=rate, fused=_on_gpu(training.device)),
        mask_items=parts.mask_items,
        config={"run": asked, "split": parts.task.split},
        data_digest=parts.task.digest,
        should_stop=should_stop,
        popularity=parts.task.popularity,
        show=show,
    )


def _on_gpu(device: str) -> bool | None:
    """Whether a run takes place on a GPU, where one kernel updates all weights; None leaves it to torch."""
    return True if device != "cpu" and torch.cuda.is_available() else None


@dataclass(frozen=True, eq=False)
class Trained:
    """A task and the model that was trained on it, in evaluation mode."""

    task: TaskData
    model: Any

    def score(self, queries: Sequence[int], candidates: Sequence[int], split: str = "test") -> Tensor:
        """Scores (Q, N) of queries of a split, by number, and candidates, by id."""
        if split not in ("train", "val", "test"):
            raise InputError(f"split={split!r}, expected 'train', 'val' or 'test'.")
        examples = getattr(self.task, split)
        query = examples.batch(_numbers("queries", queries, len(examples))).query
        with torch.no_grad():

            def item_vectors(ids: Tensor) -> Tensor:
                return self.model.encode_candidates(ids.flatten()).view(*ids.shape, -1)

            wanted = torch.from_numpy(_numbers("candidates", candidates, self.task.n_items))
            return self.model.encode_queries(query, item_vectors) @ self.model.encode_candidates(wanted).T


def _numbers(name: str, asked: Sequence[int], total: int) -> NDArray[np.int64]:
    """Whole numbers (n,) from 0 to ``total`` - 1."""
    found = np.asarray(asked)
    if found.ndim != 1 or (found.size and not np.issubdtype(found.dtype, np.integer)):
        raise InputError(f"{name}: got {found.dtype} of shape {found.shape}, expected a list of whole numbers.")
    if found.size and not 0 <= found.min() <= found.max() < total:
        raise InputError(f"{name}: got {found.min()} to {found.max()}, expected numbers from 0 to {total - 1}.")
    return found.astype(np.int64)


def load(out: str | Path, *, data: str | Path | None = None) -> Trained:
    """The model of a run with its best weights so far, and its data; ``data`` is where that is now, if it moved."""
    folder = Path(out)
    config = folder / "config.json"
    if not config.exists():
        raise InputError(f"{folder}: no config.json there, expected the folder of a run. Pass what --out was.")
    saved = read_json(config)
    training = Training(**saved["run"])
    if data is not None:
        training = replace(training, data=str(data))
    elif training.data not in EMBEDDED and not Path(training.data).exists():
        raise InputError(
            f"{folder}: its data, {training.data}, is not there, seen from {Path.cwd()}. Pass where it is: "
            "load(out, data=...)."
        )
    parts = make_parts(training)
    if parts.task.digest != saved["data_digest"]:
        raise InputError(
            f"{folder}: the data changed since this run, so its numbers mean other items. "
            f"Restore {saved['run']['data']}."
        )
    load_weights(parts.model, folder)
    return Trained(parts.task, parts.model.eval())


def make_parts(training: Training) -> Parts:
    """Read the data and build the model, its weights drawn from the run's seed."""
    if training.model not in TASK_OF:
        raise InputError(f"model: got {training.model!r}, expected one of {', '.join(TASK_OF)}.")
    task = make_task(training)
    content = task.content()
    if training.vectors is not None and task.text is None:
        raise InputError(f"vectors: got {training.vectors}, but there are no words for {training.model} to read.")
    if training.vectors is not None and task.text is not None:
        content["vectors"] = load_vectors(training.vectors, task.text.vocabulary.words).table
    settings = {"max_len": task.train.max_length} if training.model == "bert4rec" else {}
    settings |= training.settings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        model = build(training.model, content, **settings)
    if task.windows is not None:
        return Parts(task, model, make_sampler(task, training.pool), _Whole(task.windows), model.mask_items)
    return Parts(task, model, make_sampler(task, training.pool), task.train)


def make_task(training: Training) -> TaskData:
    """The data as the model wants it."""
    name = TASK_OF[training.model]
    if training.data == "clicks":
        if name != "impressions":
            raise InputError(f"clicks: a simulated world of impressions, but {training.model} learns from {name}.")
        world = sources.clicks(**training.world)
        history = training.history or Lengths().history
        return world.task(split=training.split or "user", shares=_shares(training), history=history)
    if training.world:
        raise InputError(f"world: got {training.world}, but {training.data} is no simulated world. Leave it out.")
    source = sources.read(training.data, columns=training.columns, skip_bad=training.skip_bad)
    history = training.history or (BERT4REC_MAX_LENGTH if name == "sequences" else Lengths().history)
    lengths = Lengths(training.title_words, training.body_words, history)
    return sources.prepare(source, task=name, split=training.split, shares=_shares(training), lengths=lengths)


def _shares(training: Training) -> SplitSizes:
    if training.folds is None:
        return SplitSizes()
    return SplitSizes(folds=training.folds, fold=training.seed % max(training.folds, 1))


def make_sampler(task: TaskData, pool: int) -> Sampler:
    """Where the paper takes negatives from: the impression; the catalogue; the other texts of the training split."""
    if task.name == "impressions":
        if task.negatives is None:
            raise InputError(f"{task.name}: nothing was shown and not clicked, so there are no negatives to draw.")
        return Impression(_lists(task.negatives))
    first, last = task.train.candidates
    if first != 0:
        raise InputError(f"training candidates start at {first}, expected 0")
    known = _lists(task.train_exclusions)
    here = known.ids < last  # what lies in another split cannot be drawn, so it need not be excluded
    known = Lists.of_pairs(known.owners[here], known.ids[here], len(known))
    uniform = Uniform(last, exclude=Exclusions.of(known, last))
    return Pool(uniform, pool) if task.name == "pairs" else uniform


def _lists(ragged: Ragged) -> Lists:
    return Lists(torch.from_numpy(ragged.offsets), torch.from_numpy(ragged.ids))


@dataclass(frozen=True, eq=False)
class _Whole:
    """Sequences as the loop takes them: the positives are those of the gaps, which are made at each step."""

    windows: Any

    def __len__(self) -> int:
        return len(self.windows)

    def batch(self, indices: NDArray[np.int64], /) -> tuple[Query, Tensor, Tensor]:
        query = self.windows.batch(indices)
        return query, query.users, query.users
