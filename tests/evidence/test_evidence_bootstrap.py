"""The bootstrap against closed forms, and Holm's correction against a worked example."""

import numpy as np
import pytest
from scipy import stats

from evidence.bootstrap import Measured, holm, measure, parts_of
from negwise import metrics
from negwise.errors import InputError


def single(above, size=101):
    """One positive a query that ``above`` of its candidates beat."""
    above = np.asarray(above, np.int64)
    ones = np.ones_like(above)
    return metrics.Ranks(above, ones, ones, np.full_like(above, size))


def ragged(seed, n=40):
    dice = np.random.default_rng(seed)
    sizes = dice.integers(3, 12, n)
    labels = np.concatenate([np.r_[1, (dice.random(size - 2) < 0.3).astype(int), 0] for size in sizes])
    return metrics.rank(dice.normal(size=len(labels)).round(1), labels, np.r_[0, np.cumsum(sizes)])


@pytest.mark.parametrize("metric", ["auc", "ndcg@10", "hit@5"])
def test_parts_add_up_to_the_metric(metric):
    ranks = ragged(1)
    y, x = parts_of(ranks, metric)
    told = metrics.evaluate(ranks).record()
    assert y.sum() / x.sum() == pytest.approx(told["auc"] if metric == "auc" else told["metrics"][metric], abs=1e-12)


def test_an_unknown_metric_is_refused():
    with pytest.raises(InputError, match="mrr"):
        parts_of(ragged(1), "mrr")


def test_queries_alone_give_the_textbook_error():
    """Seeds that agree leave the standard error of a mean over queries: std / sqrt(Q)."""
    dice = np.random.default_rng(0)
    one, other = dice.integers(0, 101, 300), dice.integers(0, 101, 300)
    ranks = {(rule, seed): single(above) for rule, above in (("1", one), ("4", other)) for seed in range(5)}
    found = measure(ranks, ["1", "4"], range(5), "auc", folds=None, draws=4000)
    difference = found["4"] - found["1"]
    gaps = (one - other) / 100
    assert difference.mean == pytest.approx(gaps.mean(), abs=1e-12)
    assert difference.draws.std() == pytest.approx(gaps.std() / np.sqrt(300), rel=0.06)
    assert np.allclose(difference.student, gaps.mean())


@pytest.mark.parametrize("folds", [5, None])
def test_seeds_alone_give_theirs(folds):
    """Queries that agree leave the spread of seeds, redrawn: std / sqrt(S), with S in the variance."""
    levels = [10, 14, 20, 22, 31]
    ranks = {("1", seed): single(np.full(50, level)) for seed, level in enumerate(levels)}
    found = measure(ranks, ["1"], range(5), "auc", folds=folds, draws=4000)["1"]
    values = 1 - np.array(levels) / 100
    assert found.draws.std() == pytest.approx(values.std() / np.sqrt(5), rel=0.06)
    assert found.mean == pytest.approx(values.mean())


def test_shared_queries_do_not_average_out_over_seeds_and_folds_do():
    dice = np.random.default_rng(2)
    shared = dice.integers(0, 101, 200)
    same = {("1", seed): single(shared) for seed in range(5)}
    own = {("1", seed): single(dice.permutation(shared)) for seed in range(5)}
    crossed = measure(same, ["1"], range(5), "auc", folds=None, draws=3000)["1"].draws.std()
    folds = measure(own, ["1"], range(5), "auc", folds=5, draws=3000)["1"].draws.std()
    error = (shared / 100).std() / np.sqrt(200)
    # A fold that is drawn twice counts twice: E W^2 = 2 - 1/S for each of S = 5 folds.
    assert crossed == pytest.approx(error, rel=0.06) and folds == pytest.approx(error * np.sqrt(1.8 / 5), rel=0.06)


def folded(dice, level):
    """Ten seeds in five folds: seeds s and s + 5 share the queries of a fold, ``level`` says how good each fold is."""
    own = [dice.integers(0, 40, 60) + level[fold] for fold in range(5)]
    return {("1", seed): single(np.minimum(own[seed % 5] + dice.integers(0, 5, 60), 100)) for seed in range(10)}


def test_two_seeds_of_a_fold_count_as_one_fold():
    """Against plain loops: folds are redrawn, then seeds of each, and queries once for a fold."""
    ranks = folded(np.random.default_rng(3), [0, 10, 20, 30, 40])
    found = measure(ranks, ["1"], range(10), "auc", folds=5, draws=3000)["1"]
    scores = {seed: 1 - ranks["1", seed].above / 100 for seed in range(10)}
    dice, draws = np.random.default_rng(4), []
    for _ in range(3000):
        queries = [dice.integers(0, 60, 60) for _ in range(5)]
        seeds = [fold + 5 * dice.integers(0, 2) for fold in dice.integers(0, 5, 5) for _ in range(2)]
        draws.append(np.mean([scores[seed][queries[seed % 5]].mean() for seed in seeds]))
    assert found.draws.std() == pytest.approx(np.std(draws), rel=0.06)
    assert found.interval == pytest.approx(np.quantile(draws, (0.025, 0.975)), abs=0.01)
    means = np.array([(scores[fold].mean() + scores[fold + 5].mean()) / 2 for fold in range(5)])
    expected = stats.t.interval(0.95, 4, loc=means.mean(), scale=stats.sem(means))
    assert found.student == pytest.approx(expected) and found.error == pytest.approx(stats.sem(means))
    alone = measure(ranks, ["1"], range(10), "auc", folds=10, draws=3000)["1"]  # as if each had a fold of its own
    assert alone.draws.std() < 0.8 * found.draws.std()


def test_p_counts_the_draws_on_the_far_side():
    draws = np.r_[np.full(990, 1.0), np.full(9, -1.0)]
    assert Measured(np.ones(2), draws).p == pytest.approx(2 * 10 / 1000)
    assert Measured(np.ones(2), -draws).p == pytest.approx(2 * 10 / 1000)
    assert Measured(np.zeros(2), np.zeros(99)).p == 1


def test_p_is_honest_where_nothing_differs():
    """Two arms of the same law: p below .05 about one time in twenty, rather less than more."""
    dice = np.random.default_rng(5)
    below = 0
    for _ in range(60):
        ranks = {(rule, seed): single(dice.integers(0, 101, 60)) for rule in "12" for seed in range(5)}
        found = measure(ranks, ["1", "2"], range(5), "auc", folds=5, draws=300)
        below += (found["1"] - found["2"]).p < 0.05
    assert below <= 8


def test_holm():
    """Sorted: .005 x 4, .01 x 3, .03 x 2, .04 x 1, and never below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


@pytest.mark.parametrize(("seeds", "redrawn"), [(3, (0.69, 0.81)), (5, (0.80, 0.89)), (10, (0.86, 0.94))])
def test_how_often_intervals_over_few_seeds_cover_the_truth(seeds, redrawn):
    """Where seeds make the difference: what the page says of both intervals."""
    dice, worlds, truth = np.random.default_rng(1), 500, 50_000
    covered = {"interval": 0, "student": 0}
    for levels in dice.normal(truth, 5_000, (worlds, seeds)).round().astype(int):
        ranks = {("1", seed): single([level, level], size=100_001) for seed, level in enumerate(levels)}
        found = measure(ranks, ["1"], range(seeds), "auc", folds=None, draws=400)["1"]
        for name in covered:
            low, high = getattr(found, name)
            covered[name] += low <= 0.5 <= high
    assert redrawn[0] < covered["interval"] / worlds < redrawn[1]
    assert 0.92 < covered["student"] / worlds < 0.98
