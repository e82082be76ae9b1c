"""The interval of a difference: against the textbook's sums, against worlds with a known truth, and over folds."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.crossed import crossed_contrast
from evidence.quality import Measured, holm, measure, ratio, values_of
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
def test_the_mean_over_queries_is_the_metric(metric):
    ranks = ragged(1)
    told = metrics.evaluate(ranks).record()
    expected = told["auc"] if metric == "auc" else told["metrics"][metric]
    assert values_of(ranks, metric).mean() == pytest.approx(expected, abs=1e-12)


def test_an_unknown_metric_is_refused():
    with pytest.raises(InputError, match="mrr"):
        values_of(ragged(1), "mrr")


def by_the_book(x):
    """The interval of a two-way random layout without replication, sum by sum (Searle, Casella, McCulloch 1992)."""
    rows, columns = len(x), len(x[0])
    grand = sum(sum(row) for row in x) / (rows * columns)
    row_means = [sum(row) / columns for row in x]
    column_means = [sum(x[i][j] for i in range(rows)) / rows for j in range(columns)]
    ms_rows = columns * sum((mean - grand) ** 2 for mean in row_means) / (rows - 1)
    ms_columns = rows * sum((mean - grand) ** 2 for mean in column_means) / (columns - 1)
    ss_rest = 0.0
    for i in range(rows):
        for j in range(columns):
            ss_rest += (x[i][j] - row_means[i] - column_means[j] + grand) ** 2
    df_rest = (rows - 1) * (columns - 1)
    ms_rest = ss_rest / df_rest
    var_rows, var_columns = (ms_rows - ms_rest) / columns, (ms_columns - ms_rest) / rows
    variance = var_rows / rows + var_columns / columns + ms_rest / (rows * columns)
    combined = variance * rows * columns
    df = combined**2 / (ms_rows**2 / (rows - 1) + ms_columns**2 / (columns - 1) + ms_rest**2 / df_rest)
    reach = stats.t.ppf(0.975, df) * math.sqrt(variance)
    return grand, math.sqrt(variance), df, grand - reach, grand + reach


def test_the_interval_is_the_textbooks():
    dice = np.random.default_rng(3)
    x = 0.1 + dice.normal(size=(4, 1)) + dice.normal(size=(1, 30)) + dice.normal(size=(4, 30))
    found = crossed_contrast(x)
    assert (found.mean, found.se, found.df, found.low, found.high) == pytest.approx(by_the_book(x.tolist()))
    measured = Measured(x.mean(1), x)
    assert measured.p == pytest.approx(2 * stats.t.sf(abs(found.mean) / found.se, found.df))


WORLDS = {"seeds": (1.0, 0.1, 1.0), "queries": (0.02, 3.0, 1.0), "both": (0.2, 2.0, 2.0), "neither": (0.0, 0.0, 1.0)}


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("world", WORLDS)
def test_the_interval_covers_the_truth(world, seeds):
    """Standard deviations of seeds, queries and the rest; 200 worlds of 60 queries."""
    dice = np.random.default_rng([seeds, list(WORLDS).index(world)])
    of_seeds, of_queries, of_rest = WORLDS[world]
    covered, student = 0, 0
    for _ in range(200):
        x = of_seeds * dice.normal(size=(seeds, 1)) + of_queries * dice.normal(size=(1, 60))
        x = x + of_rest * dice.normal(size=(seeds, 60))
        found = crossed_contrast(x)
        covered += found.low <= 0 <= found.high
        reach = stats.t.ppf(0.975, seeds - 1) if world == "queries" else 0.0
        student += abs(x.mean()) <= reach * stats.sem(x.mean(1))
    assert covered / 200 >= 0.92
    if world == "queries":  # what a t over seeds would have said
        assert student / 200 < 0.75


def test_two_arms_that_are_the_same_have_no_difference():
    one = Measured(np.full(3, 0.5), np.full((3, 8), 0.5))
    assert (one - one).interval == (0, 0) and (one - one).p == 1 and (one - one).sign == 0


def test_seeds_of_a_fold_count_as_one_fold():
    """Ten seeds in five folds: Student's t over the means of folds, by SciPy."""
    dice = np.random.default_rng(3)
    ranks = {(rule, seed): single(dice.integers(0, 80, 50)) for rule in "12" for seed in range(10)}
    found = measure(ranks, ["1", "2"], range(10), "auc", 5)
    gap = found["2"] - found["1"]
    scores = {key: 1 - one.above.mean() / 100 for key, one in ranks.items()}
    means = [np.mean([scores["2", seed] - scores["1", seed] for seed in (fold, fold + 5)]) for fold in range(5)]
    assert gap.interval == pytest.approx(stats.t.interval(0.95, 4, loc=np.mean(means), scale=stats.sem(means)))
    assert gap.p == pytest.approx(stats.ttest_1samp(means, 0).pvalue)


def test_a_share_of_a_known_gain():
    """Half of the gain, each with its own noise: the interval is that of the linear part, drawn many times."""
    dice = np.random.default_rng(5)

    def draw():
        whole = 0.4 + 0.1 * dice.normal(size=(5, 1)) + dice.normal(size=(5, 200))
        part = whole / 2 + 0.3 * dice.normal(size=(5, 200))
        return ratio(Measured(part.mean(1), part), Measured(whole.mean(1), whole))

    found = [draw() for _ in range(300)]
    assert np.mean([one.mean for one in found]) == pytest.approx(0.5, abs=0.01)
    assert np.mean([one.low <= 0.5 <= one.high for one in found]) >= 0.92


def test_holm():
    """Sorted: .005 x 4, .01 x 3, .03 x 2, .04 x 1, and never below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
