"""What `attach` costs in sentence-transformers: ``python -m benchmarks frameworks`` prints the records.

To measure anew, in the environment of ``make test-frameworks`` and on a quiet machine: ``python -m
benchmarks.frameworks`` writes ``results/frameworks-cpu.json``, or ``frameworks-cuda.json`` where there is a GPU.

The framework's own loss, with all other rows of the batch as negatives, takes turns with the same loss attached: at the
same K; at the same K from a closed loop, which counts every step; and at an eighth of the batch, which is drawn anew
each step. A step is the forward pass of the encoder, the loss, the backward pass and the optimizer. The loss alone is
forward and backward on vectors that stay. A turn of a small batch is `LAG` steps, since a constant K is counted once in
so many. Ratios are those of medians.

The encoder is a random BERT: small on a CPU, so that the loss weighs more than it does in earnest, with the shape of
MiniLM on a GPU, where the plain loss of the largest batch has shorter texts, so that they fit.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.table import Row, seconds
from negwise.errors import InputError
from negwise.files import write_atomically
from negwise.integrations.step_control import LAG
from negwise.protocols import Observation, Rule

RESULTS = Path(__file__).parent / "results"
SMALL, LARGE = 1.03, 1.0
"""Most that a step at the same K may take beside the framework's own: small batches, and the largest."""
DRAWN = 8
"""The drawn K is the batch over this."""
SMALL_STEPS, MOST_STEPS = 40, 400
"""Small batches have up to so many times the steps of the largest, and so many in all: they are short, and on a GPU
they jitter by 4%."""


@dataclass(frozen=True)
class ClosedLoop:
    """A constant K from a rule that sees the counts of every step, as ``online`` does."""

    k: float

    def init(self) -> dict[str, Any]:
        return {}

    def update(self, observation: Observation, state: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        return self.k, state | {"rows": observation.rows}


@dataclass(frozen=True)
class Scale:
    """Sizes of the encoder and of the batches, on one kind of device."""

    hidden: int
    layers: int
    tokens: int
    tokens_of_plain_large: int
    small: tuple[int, ...]
    large: int
    mini_batch: int

    def tokens_of(self, batch: int, cached: bool) -> int:
        return self.tokens if cached or batch != self.large else self.tokens_of_plain_large


CPU = Scale(128, 2, 12, 12, small=(32, 64, 128, 256), large=1024, mini_batch=256)
GPU = Scale(384, 6, 16, 4, small=(32, 64, 128, 256), large=32768, mini_batch=2048)


def make_model(scale: Scale, folder: str, device: str) -> Any:
    """A random BERT with mean pooling, without a tokenizer's work: its inputs are token ids."""
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = {word: place for place, word in enumerate(["[PAD]", "[UNK]", *(f"w{i}" for i in range(2000))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=scale.hidden,
        num_hidden_layers=scale.layers,
        num_attention_heads=max(scale.hidden // 32, 1),
        intermediate_size=4 * scale.hidden,
        max_position_embeddings=scale.tokens + 2,
    )
    BertModel(config).save_pretrained(folder)
    return SentenceTransformer(folder, device=device)


def attach_rule(model: Any, loss: Any, rule: str | Rule) -> Any:
    """What `attach` puts around ``loss``, without a trainer, for which Hugging Face's datasets would be needed."""
    from sentence_transformers import SentenceTransformerTrainingArguments

    from negwise.integrations.sentence_transformers import KRankingLoss, _empty_texts
    from negwise.integrations.step_control import StepControl
    from negwise.integrations.trainer_callback import KTrainerCallback

    with tempfile.TemporaryDirectory() as folder:
        args = SentenceTransformerTrainingArguments(folder, report_to="none", use_cpu=model.device.type == "cpu")
    trainer: Any = SimpleNamespace(model=model, args=args, eval_dataset=None)
    callback = KTrainerCallback(trainer, rule, 0, None)
    KRankingLoss(loss, callback, _empty_texts(trainer)).install()
    callback.control = StepControl(rule, 10**6, by_call=False)
    return callback


def measure(scale: Scale, batch: int, cached: bool, device: str, turns: int) -> dict[str, Any]:
    """Seconds of a step and of the loss alone, by kind: the framework's own, and attached at the same and a drawn K."""
    from sentence_transformers.sentence_transformer.losses import (
        CachedMultipleNegativesRankingLoss,
        MultipleNegativesRankingLoss,
    )

    with tempfile.TemporaryDirectory() as folder:
        model = make_model(scale, folder, device)
    model.train()

    def make_loss() -> Any:
        if cached:
            return CachedMultipleNegativesRankingLoss(model, mini_batch_size=scale.mini_batch)
        return MultipleNegativesRankingLoss(model)

    kinds: dict[str, tuple[Any, Any]] = {"own": (make_loss(), None)}
    rules: dict[str, str | Rule] = {
        "same": str(batch - 1),
        "closed loop": ClosedLoop(batch - 1),
        "drawn": str(batch // DRAWN),
    }
    for name, rule in rules.items():
        loss = make_loss()
        kinds[name] = (loss, attach_rule(model, loss, rule))
    tokens = scale.tokens_of(batch, cached)
    gc.collect()
    gc.freeze()  # `seconds` collects before every step, which takes longer than a small one with all that is loaded
    vectors = fixed_vectors(batch, scale, cached, device)
    many = LAG if batch != scale.large else 1

    def timed(calls: dict[str, Callable[[], None]]) -> dict[str, float]:
        found = seconds({name: partial(times, many, call) for name, call in calls.items()}, turns, 2)
        return {name: spent / many for name, spent in found.items()}

    steps = timed({name: step_of(model, batch, tokens, device, *kind) for name, kind in kinds.items()})
    alone = timed({name: loss_alone(vectors, cached, *kind) for name, kind in kinds.items()})
    case = {"batch": batch, "cached": cached, "device": device, "tokens": tokens, "k_drawn": batch // DRAWN}
    return {**case, "step": steps, "loss": alone}


def times(many: int, call: Callable[[], None]) -> None:
    for _ in range(many):
        call()


def step_of(model: Any, batch: int, tokens: int, device: str, loss: Any, callback: Any) -> Callable[[], None]:
    """A training step of ``model`` on texts that stay."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    ids = torch.randint(2, 2002, (2, batch, tokens), generator=torch.Generator().manual_seed(0)).to(device)
    inputs = [{"input_ids": one, "attention_mask": torch.ones_like(one)} for one in ids]

    def run() -> None:
        loss([dict(one) for one in inputs], None).backward()
        optimizer.step()
        optimizer.zero_grad()

    return as_step(run, callback, device)


def fixed_vectors(batch: int, scale: Scale, cached: bool, device: str) -> list[list[torch.Tensor]]:
    """Queries and positives, in mini-batches for the cached loss."""
    generator = torch.Generator().manual_seed(1)
    sides = [torch.randn(batch, scale.hidden, generator=generator).to(device) for _ in range(2)]
    size = min(scale.mini_batch, batch) if cached else batch
    return [[part.clone().requires_grad_() for part in torch.split(side, size)] for side in sides]


def loss_alone(vectors: list[list[torch.Tensor]], cached: bool, loss: Any, callback: Any) -> Callable[[], None]:
    """Forward and backward of the loss on ``vectors``."""

    def run() -> None:
        if cached:
            loss.calculate_loss(vectors, None, with_backward=True)
        else:
            loss.compute_loss_from_embeddings([side[0] for side in vectors], None).backward()
        for side in vectors:
            for part in side:
                part.grad = None

    return as_step(run, callback, vectors[0][0].device.type)


def as_step(run: Callable[[], None], callback: Any, device: str) -> Callable[[], None]:
    """``run`` as a step of K, whose end is waited for."""

    def timed() -> None:
        if callback is not None:
            callback.control.begin(callback.control.step + 1)
        run()
        if callback is not None:
            for one in callback.at_batch_end:
                one()
            callback.control.end()
        if device == "cuda":
            torch.cuda.synchronize()

    return timed


def rows_of(cases: list[dict[str, Any]], large: int) -> list[Row]:
    """Rows for each case: what is attached over the framework's own."""
    rows = []
    for case in cases:
        work = f"sentence-transformers, B = {case['batch']:,}, {'cached' if case['cached'] else 'plain'}"
        work += f", {case['device']}"
        labels = {
            "same": "attach / own, all negatives",
            "closed loop": "attach, counted every step / own, all negatives",
            "drawn": f"attach at K = {case['k_drawn']:,} / own at all negatives",
        }
        bars = {("step", "same"): LARGE if case["batch"] == large else SMALL}
        rows += [
            Row(work, f"{name}: {label}", case[what][kind] / case[what]["own"], bars.get((what, kind)), better="lower")
            for what, name in (("step", "step"), ("loss", "loss alone"))
            for kind, label in labels.items()
            if kind in case[what]
        ]
    return rows


def run() -> list[Row]:
    """The rows of the committed records."""
    files = sorted(RESULTS.glob("frameworks-*.json"))
    if not files:
        raise InputError(f"{RESULTS}: no frameworks-*.json. Measure with python -m benchmarks.frameworks")
    records = [json.loads(file.read_text()) for file in files]
    return [row for record in records for row in rows_of(record["cases"], record["large"])]


def machine(device: str) -> dict[str, Any]:
    """What was measured, and where."""
    told = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {
        "commit": told.stdout.strip(),
        "cpu": cpu,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "transformers", "sentence-transformers")},
    }


def main() -> int:
    """Exit 0 where every bar holds, 1 where one is missed."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / f"frameworks-{device}.json", help="the record, JSON")
    parser.add_argument(
        "--turns",
        type=int,
        default=5,
        help=f"steps of each kind (default: 5); small batches have up to {SMALL_STEPS} times as many",
    )
    parser.add_argument("--only", type=int, nargs="*", help="batch sizes to measure (default: all)")
    asked = parser.parse_args()
    scale = GPU if device == "cuda" else CPU
    kinds = [(batch, False) for batch in scale.small] + [(scale.large, True), (scale.large, False)]
    sizes = [*scale.small, scale.large]
    if asked.turns < 1:
        parser.error(f"--turns {asked.turns}, expected 1 or more: type --turns 5")
    if unknown := set(asked.only or []) - set(sizes):
        parser.error(f"--only {min(unknown)}, expected some of {', '.join(map(str, sizes))}: type --only {sizes[0]}")
    about = machine(device)
    cases = []
    for batch, cached in kinds:
        if asked.only is None or batch in asked.only:
            small = min(asked.turns * min(scale.large // batch, SMALL_STEPS), MOST_STEPS) // LAG
            turns = asked.turns if batch == scale.large else max(small, 1)
            cases.append(measure(scale, batch, cached, device, turns))
            for row in rows_of(cases[-1:], scale.large):
                bar = "" if row.bar is None else f" (at most {row.bar})"
                print(f"{row.work}: {row.measure}: {row.value:.3f}{bar}", flush=True)
            record = {
                "command": f"python -m benchmarks.frameworks --turns {asked.turns}",
                **about,
                "large": scale.large,
                "cases": cases,
                "rows": [row.to_dict() for row in rows_of(cases, scale.large)],
            }
            # After every case: the largest may not fit.
            write_atomically(asked.out, json.dumps(record, indent=1) + "\n")
    return 0 if all(row.passed is not False for row in rows_of(cases, scale.large)) else 1


if __name__ == "__main__":
    sys.exit(main())
