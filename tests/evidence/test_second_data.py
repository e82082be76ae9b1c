"""What the second study makes its data of: wrong labels, other catalogues, docstrings, hard negatives, all bodies."""

import json
from dataclasses import replace

import numpy as np
import pytest

import negwise as nw
from evidence import second_data as made
from negwise import InputError
from negwise.datasets import read
from negwise.requests import TrainRequest
from negwise.tasks import make_task, query_candidates, with_recipe

SMALL = {"model": "siamese-cnn", "batch_size": 32, "title_words": 4, "body_words": 8}


def test_noise_replaces_its_share():
    ids = np.arange(100_000, dtype=np.int32) + 500
    found = made.replaced(ids, 0.2, (0, 400), np.random.default_rng(0))
    changed = found != ids
    assert found.dtype == ids.dtype and abs(changed.mean() - 0.2) < 0.005
    assert found[changed].min() >= 0 and found[changed].max() < 400
    assert np.array_equal(found, made.replaced(ids, 0.2, (0, 400), np.random.default_rng(0)))


def pairs_file(folder, many=60):
    """Pairs of two topics: titles and bodies of one topic share words, so that bodies of it are hard negatives."""
    rows = [
        {"title": f"topic{at % 2} name{at} word{at}", "body": f"topic{at % 2} name{at} text{at} more{at}"}
        for at in range(many)
    ]
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return TrainRequest(data=str(path), k="4", steps=30, evaluate_training=True, **SMALL)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))


def test_noise_is_in_training_and_its_evaluation_and_nowhere_else(tmp_path):
    path = tmp_path / "clicks.csv"
    rows = [f"u{user},i{(user * 7 + at) % 30},{at}" for user in range(40) for at in range(8)]
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    items = TrainRequest(data=str(path), model="bert4rec", k="4", steps=2, evaluate_training=True)
    for request in (items, pairs_file(tmp_path, 400)):
        task = make_task(with_recipe(request))
        noisy = made.with_noise(task, 0.4, 3)
        before, after = (one.splits["train"].examples for one in (task, noisy))
        assert 0.25 < (before.positives != after.positives).mean() < 0.45
        if request.model == "bert4rec":  # a sequence, and its evaluation, have the same wrong items
            windows, each = noisy.examples.windows, after
            assert np.array_equal(windows.items, each.items) and np.array_equal(each.items[each.end], each.positives)
            assert 0.25 < (windows.items != task.examples.windows.items).mean() < 0.45
        else:
            assert noisy.examples is after and np.array_equal(before.items, after.items)
        assert all(noisy.splits[name] is task.splits[name] for name in ("val", "test")) and noisy.data is task.data


def test_all_bodies_are_candidates_and_training_draws_from_its_own(tmp_path):
    task = make_task(with_recipe(pairs_file(tmp_path)))
    wide = made.among_all(task)
    assert query_candidates(wide.data) == task.data.n_items == 60 > query_candidates(task.data)
    assert all(len(wide.splits[name].candidates) == 60 for name in ("val", "test"))
    assert len(wide.splits["train"].candidates) == task.data.train.candidates[1] < 60
    assert wide.examples is task.examples and wide.sampler is task.sampler
    assert np.array_equal(wide.splits["test"].query_examples, task.splits["test"].query_examples)


def test_histories_are_the_longest_of_each_user(tmp_path):
    lines = ["1\tu1\tnow\ta b\tc-1", "2\tu1\tlater\ta b c\td-0", "3\tu2\tnow\t\td-0"]
    (tmp_path / "behaviors.tsv").write_text("\n".join(lines) + "\n")
    found = made.click_histories(tmp_path, tmp_path / "out.csv").read_text().split()
    assert found == ["user,item,time", "u1,a,0", "u1,b,1", "u1,c,2"]


def test_simulated_users_take_what_they_like(tmp_path):
    """Items of the same users are alike: tastes of two halves of a user's items correlate, of two users they do not."""
    path = made.simulated(400, tmp_path / "out.csv", users=300, length=20)
    rows = [line.split(",") for line in path.read_text().split()[1:]]
    assert len(rows) == 6000 and len({item for _, item, _ in rows}) <= 400
    kinds = np.random.default_rng([0, 400]).normal(size=(700, 8))[300:]
    taken = kinds[[int(item[1:]) for _, item, _ in rows]].reshape(300, 20, 8)
    first, second = taken[:, :10].mean(1), taken[:, 10:].mean(1)
    assert (first * second).sum(1).mean() > 10 * abs((first * np.roll(second, 1, 0)).sum(1).mean())


SOURCE = '''"""One line alone."""


class TwoWords:
    """Makes some fooBar things.

    TwoWords is a class with
    ---------
    parameters_of a kind.
    """

    def short(self):
        """Known from the docs.

        It has been seen there before.
        """

    async def twice(self):
        """Makes some fooBar things.

        TwoWords is a class with parameters of a kind.
        """
'''


def test_docstrings_of_packages(tmp_path, monkeypatch):
    (tmp_path / "mypackage" / "inside").mkdir(parents=True)
    (tmp_path / "mypackage" / "__init__.py").write_text("")
    (tmp_path / "mypackage" / "inside" / "a.py").write_text(SOURCE)
    (tmp_path / "mypackage" / "template.py").write_text("def {name}:")
    monkeypatch.syspath_prepend(tmp_path)
    docs = tmp_path / "docs.jsonl"
    docs.write_text(json.dumps({"title": "Known from the docs.", "body": "something else here"}) + "\n")
    read_file = read
    monkeypatch.setattr(made, "read", lambda name: read_file(docs if name == "docs" else name))
    found = made.package_docstrings(tmp_path / "out.jsonl", ("mypackage",)).read_text().splitlines()
    assert [json.loads(line) for line in found] == [
        {"title": "Makes some foo Bar things.", "body": "is a class with parameters of a kind."},
        {"title": "Makes some foo Bar things.", "body": "Two Words is a class with parameters of a kind."},
    ]


def test_a_package_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no_such_package, nor_this cannot be found.*pip install no-such-package"):
        made.package_docstrings(tmp_path / "out.jsonl", ("json", "no_such_package", "nor_this"))
    assert not {"numpy", "scipy", "torch"} & set(made.PACKAGES)


@pytest.mark.slow
def test_hard_negatives_are_the_nearest_of_the_training_split(tmp_path):
    """A brute force search with the vectors of the same model finds the same; validation and test have none."""
    request = replace(pairs_file(tmp_path, 200), evaluate_training=None)
    rows = made.hard_negatives(request, 3)
    pairs = [tuple(json.loads(line).values()) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    task = make_task(with_recipe(request))
    fields = task.data.texts.fields
    training = [(fields["title"][at], fields["body"][at]) for at in range(*task.data.train.candidates)]
    inside = np.array([pair in training for pair in pairs])
    assert (rows[~inside] == -1).all() and inside[rows[rows >= 0]].all() and (rows[inside] >= 0).any()
    nw.train(**made._asked(request), out=str(tmp_path / "again"))
    model = nw.load(tmp_path / "again")
    left, right = model.encode([title for title, _ in pairs], side="left"), model.encode([body for _, body in pairs])
    scores = (left @ right.T) / np.linalg.norm(left, axis=1, keepdims=True) / np.linalg.norm(right, axis=1)
    for at in np.flatnonzero(inside):
        allowed = inside & (scores[at] <= scores[at, at] - 0.05)
        allowed[at] = False
        best = sorted(np.flatnonzero(allowed), key=lambda other: -scores[at, other])[:3]
        told = rows[at][rows[at] >= 0]
        assert np.allclose(scores[at, told], scores[at, best], atol=1e-5)

    path = made.with_given(request, rows, tmp_path / "mined.jsonl")
    mined = make_task(with_recipe(replace(request, data=str(path))))
    for name in ("val", "test"):  # the split is as it was, query by query
        first, last = getattr(task.data, name).candidates
        assert getattr(mined.data, name).candidates == (first, last)
        assert [mined.data.texts.fields["title"][at] for at in range(first, last)] == [
            fields["title"][at] for at in range(first, last)
        ]
    given = mined.data.negatives.lengths[mined.data.train.groups]
    assert given.tolist() == [int((rows[pairs.index(pair)] >= 0).sum()) for pair in training]


def test_data_that_is_there_is_not_made_again(tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "histories.csv").write_text("mine")
    made.make_data("histories", tmp_path, tmp_path)
    assert (tmp_path / "made" / "histories.csv").read_text() == "mine"
    assert made.path_of("docs", tmp_path) is None
