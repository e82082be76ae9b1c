"""What `attach` costs in sentence-transformers: ``python -m benchmarks.frameworks OUT.json [turns]``.

A step is the forward pass of the encoder, the loss, the backward pass and the optimizer. The framework's own loss and
the same with `attach` at the same K, all other rows of the batch, take turns; the ratio is that of medians. ``online``
stands beside them, with fewer negatives. The encoder is a random BERT. On a CPU it is small, so that the loss weighs
more than it does in earnest; on a GPU it has the shape of MiniLM. Run it in the environment of
``make test-frameworks``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.table import Row, seconds
from negwise.files import write_atomically

SMALL, LARGE = 1.03, 1.0
"""Most that a step may take beside the framework's own: small batches, and the largest."""


@dataclass(frozen=True)
class Scale:
    """Sizes of the encoder and of the batches, on one kind of device."""

    hidden: int
    layers: int
    tokens: int
    small: tuple[int, ...]
    large: int
    mini_batch: int


CPU = Scale(hidden=128, layers=2, tokens=12, small=(32, 64, 128, 256), large=1024, mini_batch=256)
GPU = Scale(hidden=384, layers=6, tokens=32, small=(32, 64, 128, 256), large=32768, mini_batch=2048)


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


def attached(model: Any, loss: Any, rule: str, steps: int) -> Any:
    """The callback of a trainer with ``loss`` attached; its controller has begun."""
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    from datasets import Dataset
    from negwise.integrations.sentence_transformers import attach
    from negwise.integrations.step_control import StepControl

    args = SentenceTransformerTrainingArguments(
        output_dir=tempfile.mkdtemp(), report_to="none", use_cpu=model.device.type == "cpu"
    )
    data = Dataset.from_dict({"anchor": ["w1"], "positive": ["w2"]})
    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=data, loss=loss)
    callback = attach(trainer, rule)
    callback.control = StepControl(rule, steps, by_call=False)
    return callback


def measure(scale: Scale, batch: int, cached: bool, device: str, turns: int) -> dict[str, Any]:
    """Seconds of a step with the framework's own loss, with the same K attached, and with ``online`` K at its start."""
    from sentence_transformers.sentence_transformer.losses import (
        CachedMultipleNegativesRankingLoss,
        MultipleNegativesRankingLoss,
    )

    with tempfile.TemporaryDirectory() as folder:
        model = make_model(scale, folder, device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def make_loss() -> Any:
        if cached:
            return CachedMultipleNegativesRankingLoss(model, mini_batch_size=scale.mini_batch)
        return MultipleNegativesRankingLoss(model)

    own, same, online = make_loss(), make_loss(), make_loss()
    # The trainers of two losses share the model; each has a controller of its own.
    with quiet():
        controls = [attached(model, same, str(batch - 1), 10**6), attached(model, online, "online", 10**6)]
    generator = torch.Generator().manual_seed(0)

    def features() -> list[dict[str, torch.Tensor]]:
        ids = torch.randint(2, 2002, (2, batch, scale.tokens), generator=generator)
        return [{"input_ids": one.to(device), "attention_mask": torch.ones_like(one, device=device)} for one in ids]

    inputs = features()

    def step(loss: Any, callback: Any = None) -> Callable[[], None]:
        def run() -> None:
            if callback is not None:
                callback.control.begin(callback.control.step + 1)
            loss([dict(one) for one in inputs], None).backward()
            optimizer.step()
            optimizer.zero_grad()
            if callback is not None:
                callback.control.end()
            if device == "cuda":
                torch.cuda.synchronize()

        return run

    found = seconds(
        {"own": step(own), "attach": step(same, controls[0]), "online": step(online, controls[1])}, turns, warmup=2
    )
    return {"batch": batch, "cached": cached, "device": device, "k_online": round(controls[1].control.k, 2), **found}


@contextmanager
def quiet() -> Iterator[None]:
    """Trainers warn of what they will do to data that nobody trains on."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rows_of(cases: list[dict[str, Any]], large: int) -> list[Row]:
    """A row for each case: the step with `attach` over the framework's own."""
    return [
        Row(
            f"sentence-transformers, B = {case['batch']:,}, {'cached' if case['cached'] else 'plain'}",
            "step with attach / own step, same K",
            case["attach"] / case["own"],
            LARGE if case["batch"] == large else SMALL,
            better="lower",
        )
        for case in cases
    ]


def main() -> int:
    """Exit 0 where every bar holds, 1 where one is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks", description=__doc__)
    parser.add_argument("out", type=Path, help="the record, JSON")
    parser.add_argument("turns", type=int, nargs="?", default=11, help="steps of each kind (default: 11)")
    parser.add_argument("--only", type=int, nargs="*", help="batch sizes to measure (default: all)")
    parser.add_argument("--no-plain-large", action="store_true", help="leave out the plain loss at the largest batch")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scale = GPU if device == "cuda" else CPU
    kinds = [(batch, False) for batch in scale.small] + [(scale.large, True)]
    if not asked.no_plain_large:
        kinds.append((scale.large, False))
    cases = []
    for batch, cached in kinds:
        if asked.only is None or batch in asked.only:
            cases.append(measure(scale, batch, cached, device, asked.turns))
            print({key: round(one, 5) if isinstance(one, float) else one for key, one in cases[-1].items()}, flush=True)
    rows = rows_of(cases, scale.large)
    for row in rows:
        print(f"{row.work}: {row.value:.3f} (at most {row.bar})")
    record = {
        "command": "python -m benchmarks.frameworks",
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "transformers", "sentence-transformers")},
        "cases": cases,
        "rows": [row.to_dict() for row in rows],
    }
    write_atomically(asked.out, json.dumps(record, indent=1) + "\n")
    return 0 if all(row.passed is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
