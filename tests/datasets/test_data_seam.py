"""What data hands over fits what samplers take."""

import subprocess
import sys

import numpy as np
import torch
from data_files import ratings

from negwise.datasets import clicks, prepare, read
from negwise.draws import Key
from negwise.samplers import Exclusions, Impression, Lists, Uniform


def lists(ragged):
    return Lists(torch.from_numpy(ragged.offsets), torch.from_numpy(ragged.ids))


def test_impressions_give_their_own_negatives():
    task = clicks(users=40, items=100, impressions=200, history=5).task()
    sampler = Impression(lists(task.impressions), Exclusions.of(lists(task.train_exclusions), task.n_items))
    _, positives, groups = task.train.batch(np.arange(50))
    drawn = sampler(positives, 4, Key(0, 0), owner=groups)
    assert drawn.mask.all()
    for row, group in zip(drawn.ids.tolist(), groups.tolist(), strict=True):
        assert set(row) <= set(task.negatives[group].tolist())


def test_users_never_draw_what_training_knows(tmp_path):
    path = tmp_path / "ratings.dat"
    path.write_text("".join("::".join(map(str, row)) + "\n" for row in ratings()))
    task = prepare(read(path, cache=tmp_path / "cache"))
    sampler = Uniform(task.n_items, exclude=Exclusions.of(lists(task.train_exclusions), task.n_items))
    _, positives, groups = task.train.batch(np.arange(len(task.train)))
    drawn = sampler(positives, 20, Key(0, 0), owner=groups)
    for row, group in zip(drawn.ids.tolist(), groups.tolist(), strict=True):
        assert not set(row) & set(task.train_exclusions[group].tolist())


def test_importing_data_loads_nothing_heavy():
    code = (
        "import negwise.datasets, sys; print([n for n in ('torch', 'pyarrow', 'scipy.optimize') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
