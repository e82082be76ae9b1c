"""What data hands over fits what samplers take."""

import subprocess
import sys

import numpy as np
import torch
from data_files import ratings

from negwise.datasets import clicks, prepare, read
from negwise.datasets.timestamps import parse_mind_timestamp
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


def test_histories_are_all_that_the_data_had(tmp_path):
    """Against a loop over the rows of MIND: the last impression's history, then new clicks in the order of time."""
    rng = np.random.default_rng(4)
    mind = tmp_path / "mind"
    mind.mkdir()
    (mind / "news.tsv").write_text("".join(f"N{i}\ta\tb\tword{i}\t\t\t[]\t[]\n" for i in range(12)))
    lines = []
    for row in range(60):
        day, user = int(rng.integers(10, 20)), int(rng.integers(0, 6))
        past = [f"N{i}" for i in rng.integers(0, 12, rng.integers(0, 5))]
        shown = [f"N{i}-{int(rng.random() < 0.4)}" for i in rng.permutation(12)[:4]]
        lines.append((user, f"11/{day}/2019 {1 + row % 12}:{row % 60:02d}:00 AM", past, shown))
    (mind / "behaviors.tsv").write_text(
        "".join(f"{n}\tU{u}\t{clock}\t{' '.join(p)}\t{' '.join(s)}\n" for n, (u, clock, p, s) in enumerate(lines))
    )
    source = read(mind, cache=tmp_path / "cache")
    task = prepare(source, split="user")
    for number, name in enumerate(source.tables["users"]["id"].to_pylist()):
        own = sorted((line for line in lines if f"U{line[0]}" == name), key=lambda one: parse_mind_timestamp(one[1]))
        expected = list(own[-1][2])
        for _, _, _, shown in own:
            expected += [e[:-2] for e in shown if e.endswith("-1") and e[:-2] not in expected]
        ids = source.tables["news"]["id"].to_pylist()
        assert [ids[item] for item in task.histories[number]] == expected
