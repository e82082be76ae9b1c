"""The paper's models on generated data, through the whole loop: one of each task, and what it should have learnt."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from negwise.datasets import clicks, prepare, read
from negwise.models import build
from negwise.records import Scores, read_run
from negwise.samplers import Exclusions, Impression, Lists, Pool, Uniform
from negwise.schedule import ConstantK, WarmK
from negwise.tasks import evaluate_model, evaluation_splits, model_content, tokenize
from negwise.training import Settings, fit, load_weights


def lists(ragged):
    return Lists(torch.from_numpy(ragged.offsets), torch.from_numpy(ragged.ids))


def make(name, task, **settings):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(name, model_content(task, tokenize(task)), **settings)


def go(out, model, task, sampler, rule, examples=None, mask_items=None, **settings):
    settings = Settings(**{"steps": 120, "batch_size": 32, "eval_every": 60, "device": "cpu", "threads": 1, **settings})
    result = fit(
        out,
        model,
        examples or task.train,
        n_items=task.n_items,
        sampler=sampler,
        rule=rule,
        settings=settings,
        splits=evaluation_splits(task, 300),
        optimizer=partial(torch.optim.Adam, lr=3e-3),
        mask_items=mask_items,
        data_digest=task.digest,
        show=False,
    )
    curve = [record.auc for record in read_run(out).of_split("val")]
    return result, curve


def test_nrms_on_simulated_clicks(tmp_path):
    """No scorer can beat the world's own AUC; a trained one comes near it, from chance."""
    world = clicks(noise=0.3, users=150, items=200, impressions=1500, shown=12, history=15, dimensions=4)
    task = world.task()
    small = {"heads": 2, "head_dim": 8, "embedding": 16, "pooling": 16, "dropout": 0.1}
    sampler = Impression(lists(task.negatives))
    result, curve = go(tmp_path, make("nrms", task, **small), task, sampler, WarmK(4))
    assert curve[0] < 0.58 < 0.62 < curve[-1] < world.auc + 0.02
    again = load_weights(make("nrms", task, **small), tmp_path)
    assert Scores(**evaluate_model(again, evaluation_splits(task, 300)["test"]).record()) == result.evaluations["test"]


def test_siamese_cnn_on_text_pairs(tmp_path):
    """Titles and bodies share a rare word; by it the right body is found among all of the split."""
    rng = np.random.default_rng(0)
    file = tmp_path / "pairs.jsonl"
    rows = []
    for number in range(400):
        topics = [f"topic{at}" for at in rng.choice(40, 2, replace=False)]
        filler = [f"word{at}" for at in rng.integers(0, 300, 14)]
        rows.append({"left": " ".join([*topics, *filler[:2], f"n{number}"]), "right": " ".join([*filler[4:], *topics])})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = prepare(read(str(file), cache=tmp_path / "cache"))
    last = task.train.candidates[1]
    known = lists(task.train_exclusions)
    here = known.ids < last
    known = Lists.of_pairs(known.owners[here], known.ids[here], len(known))
    sampler = Pool(Uniform(last, exclude=Exclusions.of(known, last)), 64)
    model = make("siamese-cnn", task, hidden=24, embedding=24, pooling=16, dropout=0.1)
    _, curve = go(tmp_path / "run", model, task, sampler, ConstantK(20))
    assert curve[0] < 0.7 and curve[-1] > 0.8 and curve[-1] > curve[0] + 0.15


class Whole:
    """Sequences as examples; their positives are those of the gaps."""

    def __init__(self, windows):
        self.windows = windows

    def __len__(self):
        return len(self.windows)

    def batch(self, indices):
        query = self.windows.batch(indices)
        return query, query.users, query.users


@pytest.mark.slow
def test_bert4rec_on_sequences(tmp_path):
    """Sequences that count upwards modulo 40, with a step of their own: the next item can be known."""
    rng = np.random.default_rng(1)
    lines = ["user,item,time"]
    for user in range(200):
        start, pace = rng.integers(0, 40), rng.integers(1, 3)
        lines += [f"u{user},i{(start + pace * at) % 40},{at}" for at in range(12)]
    file = tmp_path / "clicks.csv"
    file.write_text("\n".join(lines) + "\n")
    task = prepare(read(str(file), cache=tmp_path / "cache"))
    model = make("bert4rec", task, heads=2, head_dim=16, layers=1, dropout=0.0, max_len=task.train.max_length)
    known = Exclusions.of(lists(task.train_exclusions), task.n_items)
    sampler = Uniform(task.n_items, exclude=known)
    _, curve = go(
        tmp_path / "run", model, task, sampler, ConstantK(10), Whole(task.windows), model.mask_items, steps=250
    )
    assert curve[0] < 0.7 and curve[-1] > 0.9
    steps = read_run(tmp_path / "run").steps
    assert steps[-1].loss < steps[0].loss - 0.5
