"""Folds by user: over all of them each user is tested once, and whoever is held out teaches nothing."""

import numpy as np
import pytest
from data_files import mind_behaviors, mind_news, shared, write_mind

from negwise.datasets import SplitSizes, clicks, prepare, read
from negwise.datasets.splits import TEST, TRAIN, VAL, split_at_random
from negwise.errors import InputError
from negwise.tasks import tokenize

NEWS = mind_news(40)


@pytest.mark.parametrize(("n", "folds"), [(15, 5), (16, 5), (103, 5), (40, 2), (9, 3)])
def test_each_is_tested_once_and_no_part_is_empty(n, folds):
    parts = np.stack([split_at_random(n, SplitSizes(folds=folds, fold=fold), 7, "users") for fold in range(folds)])
    assert ((parts == TEST).sum(0) == 1).all()
    sizes = (parts == TEST).sum(1)
    assert sizes.max() - sizes.min() <= 1
    for part in parts:
        assert (part == TRAIN).sum() > 0 and (part == VAL).sum() == max(1, round(0.1 * n))


def test_without_folds_the_split_is_what_it_was():
    order = np.random.Generator(np.random.PCG64(3)).permutation(50)
    parts = split_at_random(50, SplitSizes(), 3, "users")
    assert set(np.flatnonzero(parts == TEST)) == set(order[:5]) and set(np.flatnonzero(parts == VAL)) == set(
        order[5:10]
    )


def files_of(split, news, users):
    """(user, history) of every example of a split, in the file's own names."""
    found = set()
    for at in range(len(split)):
        history = tuple(news[i] for i in split.items[split.start[at] : split.end[at]])
        found.add((users[split.users[at]], history))
    return found


@pytest.mark.parametrize("fold", range(5))
def test_no_history_and_no_impression_of_a_held_out_user_is_taught(tmp_path, fold):
    rows = mind_behaviors(120, NEWS, days=range(9, 21), seed=3, users=30)
    source = read(write_mind(tmp_path / "MIND", NEWS, rows), cache=tmp_path / "cache")
    task = prepare(source, split="user", shares=SplitSizes(folds=5, fold=fold))
    users, news = source.tables["users"]["id"].to_pylist(), source.tables["news"]["id"].to_pylist()
    held = {users[u] for split in (task.val, task.test) for u in split.users}
    taught = {users[u] for u in task.train.users}
    assert held and taught and not held & taught
    histories = {(row[1], tuple(row[3])) for row in rows}
    for split, of in ((task.train, taught), (task.test, held)):
        for user, history in files_of(split, news, users):
            assert user in of and (user, history) in histories
    # the lists that training draws negatives from are those of its own impressions
    whose = [row[1] for row in rows]
    assert {whose[group] for group in task.train.groups} == taught
    words = {word for name in {n for row in rows if row[1] in taught for n in [*row[3], *(n for n, _ in row[4])]}
             for word in NEWS[int(name[1:])][3].lower().split()}  # fmt: skip
    known = set(tokenize(task).tokenizer.words[2:])
    titles = {word for row in NEWS for word in row[3].lower().split()}
    assert known & titles <= words | {word for row in NEWS for word in row[4].lower().split()}


def test_seeds_of_a_run_take_turns():
    from negwise.requests import TrainRequest
    from negwise.tasks import load_data

    world = {"users": 30, "items": 40, "impressions": 120, "shown": 8, "history": 5}
    tasks = [
        load_data(TrainRequest(data="clicks", model="nrms", world=world, folds=5, seed=seed, history=5))
        for seed in range(6)
    ]
    tested = [set(task.test.users.tolist()) for task in tasks]
    assert tested[5] == tested[0] and sum(map(len, tested[:5])) == len(set.union(*tested[:5]))
    people = set(clicks(**world).impressions.users.tolist())
    assert set.union(*tested[:5]) <= people
    for task, own in zip(tasks, tested, strict=True):
        assert not own & (set(task.train.users.tolist()) | set(task.val.users.tolist()))


@pytest.mark.slow
def test_the_sample_of_mind(tmp_path):
    source = read(shared("mind"), cache=tmp_path)
    tested = []
    for fold in range(5):
        task = prepare(source, split="user", shares=SplitSizes(folds=5, fold=fold))
        held = set(task.test.users.tolist()) | set(task.val.users.tolist())
        assert not held & set(task.train.users.tolist())
        tested.append(set(task.test.users.tolist()))
    assert sum(map(len, tested)) == len(set.union(*tested)) == 4637


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"folds": 1}, "folds=1"),
        ({"folds": 5, "fold": 5}, "fold=5"),
        ({"folds": 2, "val": 0.5}, "nothing is left"),
    ],
)
def test_folds_that_cannot_be(more, said):
    with pytest.raises(InputError, match=said):
        SplitSizes(**more)


def test_a_split_that_deals_nobody_out_says_so(tmp_path):
    rows = mind_behaviors(80, NEWS, days=range(9, 21), seed=3)
    source = read(write_mind(tmp_path / "MIND", NEWS, rows), cache=tmp_path / "cache")
    with pytest.raises(InputError, match="--split user"):
        prepare(source, split="time", shares=SplitSizes(folds=5))
    with pytest.raises(InputError, match="5 folds need 15"):
        prepare(source, split="user", shares=SplitSizes(folds=5))
