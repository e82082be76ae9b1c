"""The sampler that fits the data: what it draws, what it is made of, what is refused."""

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from task_world import make_data

from negwise.datasets import Ragged
from negwise.draws import Key
from negwise.errors import InputError
from negwise.requests import TrainRequest
from negwise.requests.training_requests import SAMPLERS
from negwise.samplers import BatchFirst, GivenFirst, Impression, Mixture, Popularity, Queue, Uniform
from negwise.tasks import make_model, make_sampler, max_negatives
from negwise.tasks.sampler_choice import CHOICES

SMALL = {
    "impressions": {"model": "nrms", "settings": {"heads": 2, "head_dim": 4, "embedding": 8, "pooling": 8}},
    "sequences": {"model": "bert4rec", "settings": {"layers": 1, "heads": 2, "head_dim": 4}},
    "pairs": {"model": "siamese-cnn", "settings": {"hidden": 8, "embedding": 8, "pooling": 8}},
}
ANY = ("uniform", "popularity", "popularity:0.75", "in-batch", "queue", "queue:64", "hardest", "hardest:8")
ANY += ("0.5*uniform+0.5*popularity", "in-batch+2*queue:16", "uniform+hardest:8")
NAMES = {
    "impressions": (None, "impression", "uniform+impression", *ANY),
    "sequences": (None, *ANY),
    "pairs": (None, "pool", "pool:32", "pool+popularity", *ANY),
    "pairs with negatives": (None, "given", "pool:32", *ANY),
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    return {kind: make_data(kind, tmp_path_factory.mktemp(kind.split()[0])) for kind in NAMES}


@pytest.fixture(scope="module")
def models(worlds):
    requests = {kind: TrainRequest(data="x", **SMALL[data.name]) for kind, data in worlds.items()}
    return {kind: make_model(requests[kind], data) for kind, data in worlds.items()}


def all_parts(sampler):
    return [sampler, *(one for part in getattr(sampler, "parts", ()) for one in all_parts(part))]


def draw(sampler, data, rows, k, step=0):
    """As the loop draws: a queue knows the positives of earlier steps, ``hardest`` sees the query."""
    query, positives, groups = data.train.batch(rows)
    for queue in (part for part in all_parts(sampler) if isinstance(part, Queue)):
        queue.push(torch.from_numpy(data.train.positives))
    more = {"query": query} if "query" in inspect.signature(sampler).parameters else {}
    return sampler(positives, k, Key(3, step), owner=groups, **more)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in NAMES.items() for text in texts])
def test_every_sampler_that_fits_draws_valid_negatives(worlds, models, kind, text):
    data = worlds[kind]
    sampler = make_sampler(data, models[kind], text)
    first, last = data.train.candidates
    drawn_at_all = 0
    for step in range(10):
        rows = np.random.default_rng(step).permutation(len(data.train))[:16]
        found = draw(sampler, data, rows, 4, step)
        for at, row in enumerate(rows):
            drawn = found.ids[at][found.mask[at]].tolist()
            assert data.train.positives[row] not in drawn
            assert not set(drawn) & set(data.train_exclusions[data.train.groups[row]].tolist())
            assert all(first <= item < last for item in drawn)
            drawn_at_all += len(drawn)
    assert drawn_at_all > 10 * 16


def test_what_is_excluded_and_what_lies_beyond_training_is_there_to_be_drawn(worlds):
    """Else the test above could not fail."""
    for data in worlds.values():
        assert data.train_exclusions.lengths[data.train.groups].min() >= 1
    pairs = worlds["pairs"]
    assert pairs.train.candidates[1] < pairs.n_items == 60


@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind.startswith("pairs")])
def test_all_that_may_be_drawn_is_drawn_in_the_end(worlds, models, kind):
    data = worlds[kind]
    sampler, row = make_sampler(data, models[kind], "uniform"), [0]
    seen = {int(i) for step in range(40) for i in draw(sampler, data, row, 20, step).ids[0]}
    excluded = set(data.train_exclusions[data.train.groups[0]].tolist())
    assert seen == set(range(*data.train.candidates)) - excluded


USUAL = {"impressions": Impression, "sequences": Uniform, "pairs": BatchFirst, "pairs with negatives": GivenFirst}


@pytest.mark.parametrize("kind", USUAL)
def test_the_usual_sampler_of_each_kind(worlds, models, kind):
    assert type(make_sampler(worlds[kind], models[kind])) is USUAL[kind]


def test_options_reach_the_sampler(worlds, models):
    def made(text, kind="pairs", **more):
        return make_sampler(worlds[kind], models[kind], text, **more)

    assert (made("queue").capacity, made("queue:64").capacity, made("queue:capacity=32").capacity) == (4096, 64, 32)
    sizes = [made(None, pool=9).size, made("pool").size, made("pool", pool=7).size, made("pool:32", pool=7).size]
    assert sizes == [9, 512, 7, 32]
    assert (made("popularity").alpha, made("popularity:0.75").alpha) == (1, 0.75)
    assert (made("hardest").candidates, made("hardest:8").candidates) == (100, 8)
    assert made("hardest:8", pool=7).source.size == 7  # texts are encoded: few of them
    assert type(made("hardest:8", "sequences").source) is Uniform


def test_a_mixture_has_the_parts_and_the_weights_that_were_typed(worlds, models):
    mixture = make_sampler(worlds["sequences"], models["sequences"], "0.25*uniform+3*popularity:0.5+queue:9")
    assert isinstance(mixture, Mixture)
    assert [type(part) for part in mixture.parts] == [Uniform, Popularity, Queue]
    assert mixture.weights == (0.25, 3, 1)
    assert (mixture.parts[1].alpha, mixture.parts[2].capacity) == (0.5, 9)


def test_popularity_counts_training_positives(worlds, models):
    """log_q of the draw against the counts in a loop."""
    data, rows = worlds["sequences"], [0, 5, 9]
    found = draw(make_sampler(data, models["sequences"], "popularity:0.5"), data, rows, 6)
    for at, row in enumerate(rows):
        excluded = set(data.train_exclusions[data.train.groups[row]].tolist())
        weight = {i: float(n) ** 0.5 for i, n in enumerate(data.popularity) if n and i not in excluded}
        for item, log_q in zip(found.ids[at].tolist(), found.log_q[at].tolist(), strict=True):
            assert log_q == pytest.approx(math.log(weight[item] / sum(weight.values())), abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "text", "fitting"),
    [
        ("impressions", "pool", "uniform, popularity, in-batch, queue, impression, hardest"),
        ("impressions", "uniform+given", "uniform, popularity, in-batch, queue, impression, hardest"),
        ("sequences", "impression", "uniform, popularity, in-batch, queue, hardest"),
        ("sequences", "pool:32", "uniform, popularity, in-batch, queue, hardest"),
        ("pairs", "impression", "uniform, popularity, in-batch, batch-first, queue, given, pool, hardest"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(worlds, models, kind, text, fitting):
    wrong = text.split("+")[-1].split(":")[0]
    with pytest.raises(InputError, match=f"got '{wrong}', but this data is {kind}. Expected one of {fitting}."):
        make_sampler(worlds[kind], models[kind], text)


def test_given_needs_negatives_that_came_with_the_data(worlds, models):
    with pytest.raises(InputError, match=r"got 'given', but no negatives came with the data \(columns neg, negatives"):
        make_sampler(worlds["pairs"], models["pairs"], "given")


@pytest.mark.parametrize("text", ["queue:0", "pool:0", "hardest:0", "popularity:-1", "queue:64.5"])
def test_an_option_that_makes_no_sense_is_refused(worlds, models, text):
    with pytest.raises(InputError, match="expected"):
        make_sampler(worlds["pairs"], models["pairs"], text)


def rows_of_training(data):
    yield from zip(data.train.positives.tolist(), data.train.groups.tolist(), strict=True)
    if data.windows is not None:  # sequences, in which each item is a positive in its turn
        for row, user in enumerate(data.windows.users.tolist()):
            yield int(data.windows.items[data.windows.start[row]]), user


def most(data, lists=None):
    """Over training rows: the candidates of training without what the row must not have, or what was given to it."""
    best = 0
    for positive, group in rows_of_training(data):
        excluded = {positive, *data.train_exclusions[group].tolist()}
        own = range(*data.train.candidates) if lists is None else lists[group].tolist()
        best = max(best, sum(item not in excluded for item in own))
    return best


def test_every_name_can_be_chosen():
    assert CHOICES.keys() == SAMPLERS.keys()


@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind != "impressions"])
def test_the_ceiling_is_what_the_sampler_has(worlds, models, kind):
    """As many distinct negatives as the rows of training find when they ask for many more than there are."""
    data = worlds[kind]
    positives, owners = torch.tensor(list(rows_of_training(data))).T
    found = make_sampler(data, models[kind], "uniform")(positives, 1500, Key(3, 0), owner=owners)
    counts = [len(set(ids[mask].tolist())) for ids, mask in zip(found.ids, found.mask, strict=True)]
    assert max(counts) == max_negatives(data, "uniform") == max_negatives(data)


def test_texts_of_other_splits_are_no_negatives(worlds):
    """Nor do rows of other splits that exclude nothing raise the ceiling."""
    data = worlds["pairs"]
    last = data.train.candidates[1]
    assert max_negatives(data) < last < data.n_items
    held = set(data.val.groups.tolist()) | set(data.test.groups.tolist())
    known = data.train_exclusions
    rows = [[] if group in held else known[group].tolist() for group in range(len(known))]
    bare = replace(data, train_exclusions=Ragged.of(rows), eval_exclusions=Ragged.of([[]] * len(rows)))
    assert max_negatives(bare) == max_negatives(data)


@pytest.mark.parametrize("kind", NAMES)
def test_no_row_can_have_more_negatives_than_the_ceiling(worlds, kind):
    data = worlds[kind]
    whole = most(data)
    assert 20 < whole < data.train.candidates[1] <= data.n_items
    assert kind != "impressions" or not data.eval_exclusions.lengths.all()  # some have no click, and are no rows
    for text in ("uniform", "popularity", "popularity+uniform"):
        assert max_negatives(data, text) == whole
    given = 0 if kind != "pairs with negatives" else most(data, data.negatives)  # they come first, drawn ones after
    assert max_negatives(data, "in-batch", batch_size=16) == 15 + given
    assert max_negatives(data, "queue:8+uniform") == whole
    if kind == "pairs with negatives":
        assert max_negatives(data, "given") == given == 2
        assert max_negatives(data, "queue:8") == max_negatives(data, "pool:8") == 8 + given
        return
    assert max_negatives(data, "queue:8") == max_negatives(data, "hardest:8") == 8
    if kind == "impressions":
        assert max_negatives(data) == max_negatives(data, "impression") == most(data, data.negatives) < 8
    if kind == "sequences":
        assert max_negatives(data) == max_negatives(data, "hardest", pool=7) == whole
    if kind == "pairs":
        assert max_negatives(data) == max_negatives(data, "pool:1000") == whole
        assert max_negatives(data, pool=16) == max_negatives(data, "pool:16") == max_negatives(data, "pool:16", 9) == 16
        assert max_negatives(data, "hardest", pool=7) == 7
