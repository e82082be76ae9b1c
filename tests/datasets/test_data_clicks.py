"""The simulated world: its truth against a Monte-Carlo that draws clicks from noise, not from probabilities."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr

from negwise.datasets import clicks
from negwise.datasets.clicks import SHAPES, USER_SPREAD
from negwise.errors import InputError
from negwise.tasks import model_content, tokenize

SMALL = {"users": 60, "items": 300, "impressions": 400, "shown": 12, "history": 10, "dimensions": 5}


def noise_of(shape, random, size):
    """Noise of unit variance drawn directly, by NumPy's generators."""
    if shape == "logistic":
        return random.logistic(0.0, np.sqrt(3.0) / np.pi, size)
    if shape == "heavy":
        return random.standard_t(3, size) / np.sqrt(3.0)
    return random.standard_normal(size)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_true_auc_against_clicks_drawn_from_noise(shape, noise):
    """Mean over clicks of the share of the impression's own non-clicks below, by loops over fresh impressions."""
    world = clicks(noise=noise, shape=shape, seed=5, **SMALL)
    random = np.random.default_rng(1)
    shares = []
    for user in world.impressions.users:
        for _ in range(8):
            items = random.choice(SMALL["items"], SMALL["shown"], replace=False)
            score = world.items[items] @ world.users[user]
            clicked = score + world.scales[user] * noise_of(shape, random, len(items)) > world.threshold
            if clicked.any() and not clicked.all():
                shares += [(score[~clicked] < positive).mean() for positive in score[clicked]]
    error = np.std(shares) / np.sqrt(len(shares))
    assert error < 0.006
    assert abs(np.mean(shares) - world.auc) < 4 * error


@pytest.mark.parametrize("shape", SHAPES)
def test_probabilities_are_those_of_the_noise(shape):
    world = clicks(noise=0.8, shape=shape, seed=2, **SMALL)
    random = np.random.default_rng(3)
    user = np.array([7])
    draws = noise_of(shape, random, (20_000, 5))
    items = np.argsort(world.affinity(user)[0])[[20, 100, 200, 270, 299]]
    score = world.affinity(user)[0, items]
    frequency = (score + world.scales[7] * draws > world.threshold).mean(0)
    p = world.probability(user)[0, items]
    assert np.abs(frequency - p).max() < 4 * 0.5 / np.sqrt(20_000)


def test_the_clicks_are_drawn_from_the_probabilities():
    world = clicks(noise=0.7, seed=1, **(SMALL | {"impressions": 6000}))
    data = world.impressions
    p = np.concatenate([world.probability(np.array([user]))[0, data.shown[i]] for i, user in enumerate(data.users)])
    for low, high in ((0, 0.02), (0.02, 0.2), (0.2, 0.6), (0.6, 1)):
        inside = (p >= low) & (p < high)
        error = np.sqrt((p[inside] * (1 - p[inside])).sum()) / inside.sum()
        assert abs(data.labels[inside].mean() - p[inside].mean()) < 4 * error
    assert all(len(set(data.shown[i].tolist())) == 12 for i in range(200))


def test_the_dial_turns_separation_down():
    found = [clicks(noise=noise, **SMALL).separation for noise in (0.0, 0.2, 0.5, 1.0, 2.0)]
    assert found[0] == np.inf and all(a > b for a, b in itertools.pairwise(found))
    world = clicks(noise=0.5, **SMALL)
    assert np.isclose(ndtr(world.separation / np.sqrt(2)), world.auc)


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_click_rate_is_kept(rate):
    world = clicks(noise=1.0, click_rate=rate, **SMALL)
    assert abs(world.probability(np.arange(60)).mean() - rate) < 1e-6


def test_users_differ_only_where_asked():
    assert np.ptp(clicks(noise=0.5, **SMALL).scales) == 0
    spread = np.log(clicks(noise=0.5, shape="users", **(SMALL | {"users": 4000})).scales / 0.5)
    assert abs(spread.std() - USER_SPREAD) < 0.03


def test_the_same_seed_gives_the_same_world():
    one, two, other = (clicks(seed=seed, **SMALL) for seed in (4, 4, 5))
    assert one.digest == two.digest != other.digest


def test_its_task():
    world = clicks(**SMALL)
    task = world.task(history=6)
    query, positives, groups = task.train.batch(np.arange(5))
    assert query.items.shape == (5, 6) and task.name == "impressions"
    past = world.impressions.clicked.reshape(60, 10)
    assert query.items.tolist() == past[query.users.numpy()][:, -6:].tolist()
    assert all(
        p in task.train_exclusions[g] and p not in task.negatives[g]
        for p, g in zip(positives, groups.tolist(), strict=True)
    )
    texts = tokenize(task)
    words = texts.tokenizer.words
    assert texts.tokenizer.encode([task.texts.fields["title"][7]], 30).tolist() == [texts.tokens["title"][7].tolist()]
    edges = np.linspace(0, 1, 9)
    for item in range(20):
        for dimension, token in enumerate(texts.tokens["title"][item][: world.items.shape[1]]):
            low = int(words[token].split("b")[1])
            assert words[token].startswith(f"d{dimension}b")
            assert edges[low] <= ndtr(world.items[item, dimension]) <= edges[low + 1]
    assert set(model_content(task, texts)) >= {
        "title",
        "abstract",
        "category",
        "subcategory",
        "n_words",
        "n_users",
        "n_items",
    }
    assert len(world.task(split="time").test) > 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shape": "cauchy"}, "shape='cauchy'"),
        ({"noise": -1}, "noise=-1"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"click_rate": 1.0}, "click_rate=1.0"),
        ({"shown": 301}, "shown=301"),
        ({"noise": 0.0, "history": 299}, "history=299"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(InputError, match=words):
        clicks(**(SMALL | settings))


@pytest.mark.parametrize("shape", SHAPES)
def test_true_auc_of_one_user_and_two_shown_items_is_exact(shape):
    """With two items shown, an impression that counts is a clicked and an unclicked one: a sum over ordered pairs."""
    world = clicks(
        shape=shape, noise=0.7, users=1, items=12, impressions=4, shown=2, history=2, dimensions=3, click_rate=0.3
    )
    score, p = world.affinity(np.array([0]))[0], world.probability(np.array([0]))[0]
    chance = {(i, j): p[i] * (1 - p[j]) for i, j in itertools.permutations(range(12), 2)}
    won = sum(weight for (i, j), weight in chance.items() if score[i] > score[j])
    assert world.auc == pytest.approx(won / sum(chance.values()), abs=1e-12)


def test_another_calendar_is_another_world():
    assert clicks(seed=4, days=14, **SMALL).digest != clicks(seed=4, days=28, **SMALL).digest
