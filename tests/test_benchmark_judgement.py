"""How ``benchmarks.online`` judges a rule: against loops, against SciPy's t, and in simulation."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from benchmarks import equal_time, online
from benchmarks.crossed import crossed_contrast, fold_contrast


def components(table):
    """Variance components of a table (seeds, queries), by loops over its cells: seeds, queries, the rest."""
    seeds, queries = len(table), len(table[0])
    whole = sum(sum(row) for row in table) / (seeds * queries)
    rows = [sum(row) / queries for row in table]
    columns = [sum(table[s][q] for s in range(seeds)) / seeds for q in range(queries)]
    ms_seeds = queries * sum((one - whole) ** 2 for one in rows) / (seeds - 1)
    ms_queries = seeds * sum((one - whole) ** 2 for one in columns) / (queries - 1)
    left = sum((table[s][q] - rows[s] - columns[q] + whole) ** 2 for s in range(seeds) for q in range(queries))
    ms_rest = left / ((seeds - 1) * (queries - 1))
    return whole, (ms_seeds - ms_rest) / queries, (ms_queries - ms_rest) / seeds, ms_rest


def table_of(seeds, queries, by_seed, by_query, rest, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    return (
        shift
        + by_seed * rng.standard_normal((seeds, 1))
        + by_query * rng.standard_normal((1, queries))
        + rest * rng.standard_normal((seeds, queries))
    )


def test_seeds_and_queries_that_both_vary():
    """The error is that of the mean: a part over seeds, a part over queries, a part over cells."""
    table = table_of(5, 40, 0.3, 0.7, 0.5)
    mean, of_seeds, of_queries, of_rest = components(table.tolist())
    assert of_seeds > 0 and of_queries > 0
    found = crossed_contrast(table)
    variance = of_seeds / 5 + of_queries / 40 + of_rest / 200
    assert (found.mean, found.se) == (pytest.approx(mean), pytest.approx(math.sqrt(variance)))
    ms = [40 * of_seeds + of_rest, 5 * of_queries + of_rest, of_rest]
    df = (ms[0] + ms[1] - ms[2]) ** 2 / (ms[0] ** 2 / 4 + ms[1] ** 2 / 39 + ms[2] ** 2 / 156)  # Satterthwaite
    assert found.df == pytest.approx(df)
    low, high = stats.t.interval(0.95, df, loc=mean, scale=math.sqrt(variance))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("axis", [0, 1])
def test_where_one_side_makes_the_difference_it_is_students_t_over_it(axis):
    """Rows that are alike in all queries, or queries that are alike in all seeds: SciPy's one-sample t."""
    values = np.random.default_rng(1).normal(0.2, 1.0, 6)
    table = np.repeat(values[:, None], 50, 1) if axis == 0 else np.repeat(values[None, :], 4, 0)
    found, want = crossed_contrast(table), stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(want.low), pytest.approx(want.high))


def test_folds_are_students_t():
    values = np.array([0.1, -0.2, 0.4, 0.3, 0.0])
    found, want = fold_contrast(values), stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high, found.df) == (pytest.approx(want.low), pytest.approx(want.high), 4)


@pytest.mark.parametrize(("by_seed", "by_query"), [(0.3, 0.0), (0.0, 2.0), (0.2, 1.0)])
def test_the_interval_covers(by_seed, by_query):
    """The truth is 0; 95% is asked for, and 400 tables tell 90 from it."""
    inside = sum(
        found.low <= 0 <= found.high
        for found in (crossed_contrast(table_of(5, 60, by_seed, by_query, 1.0, seed)) for seed in range(400))
    )
    assert inside >= 0.92 * 400


def runs(task, **means):
    """Runs of the comparing seeds, by rule, with that mean; seeds and queries vary a little."""
    found = []
    for rule, mean in means.items():
        for at, seed in enumerate(online.COMPARING):
            noise = np.random.default_rng([at, len(rule)]).normal(0, 0.01, 200)
            found.append({"task": task, "rule": rule.removeprefix("k"), "seed": seed, "values": mean + noise})
            found[-1]["wins"] = found[-1]["values"] / 2
    return found


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [(0.52, "holds"), (0.50, "holds"), (0.492, "holds"), (0.485, "does not hold"), (0.3, "does not hold")],
)
def test_a_rule_may_lose_three_percent_of_the_gain(mean, verdict):
    """The best K has .5 and K = 1 .2: with a small error a loss of .009 is the limit."""
    found = online.judge(runs("docs", metric=mean, k1000=0.5, k1=0.2), "docs", "metric", "1000")
    assert found["verdict"] == verdict
    assert found["gain"] == pytest.approx(0.3, abs=0.005) and found["se"] < 0.002
    assert found["mean"] == pytest.approx(mean - 0.5, abs=0.005)
    assert found["auc"]["mean"] == pytest.approx(found["mean"] / 2)


def test_one_standard_error_may_be_lost_too():
    """Where it is more than 3% of the gain and less than the tenth beyond which nothing is decided."""
    all_runs = runs("docs", metric=0.5, k1000=0.5, k1=0.2)
    for one in all_runs:
        if one["rule"] == "metric":  # seeds differ
            one["values"] = one["values"] - 0.012 + 0.04 * (online.COMPARING.index(one["seed"]) - 2) / 2
    found = online.judge(all_runs, "docs", "metric", "1000")
    assert 0.03 * found["gain"] < -found["mean"] < found["se"] < 0.1 * found["gain"]
    assert found["verdict"] == "holds"


def test_a_large_error_decides_nothing():
    all_runs = runs("mind", metric=0.35, k4=0.5, k1=0.2)
    for one in all_runs:
        if one["rule"] == "metric":
            one["values"] = one["values"] + 0.1 * (online.COMPARING.index(one["seed"]) - 2)
    found = online.judge(all_runs, "mind", "metric", "4")
    gaps = [np.mean(one["values"]) for one in all_runs if one["rule"] == "metric"]
    best = [np.mean(one["values"]) for one in all_runs if one["rule"] == "4"]
    want = stats.ttest_rel(gaps, best).confidence_interval(0.95)  # news: Student's t over folds
    assert (found["low"], found["high"]) == (pytest.approx(want.low), pytest.approx(want.high))
    assert found["verdict"] == "not decided"


def test_the_best_fixed_k_is_that_of_validation():
    """Over the choosing seeds, and a K that lacks one of them is no candidate."""
    values = {"1": (0.2, 0.2), "20": (0.5, 0.3), "100": (0.3, 0.6), "300": (0.9,)}
    found = [
        {"task": "docs", "rule": k, "seed": seed, "val": {"hit@5": one}}
        for k, ones in values.items()
        for seed, one in zip(online.CHOOSING, ones, strict=False)
    ]
    assert online.best_fixed(found, "docs") == "100"
    assert online.mean_of(found, "docs", "300", "val", online.CHOOSING) is None


@pytest.mark.parametrize(("files", "cell"), [("ml-1m", "ml-1m, ndcg@10"), ("clicks-auc", "clicks, auc")])
def test_the_record_of_the_main_job_follows_from_its_values_by_query(files, cell):
    """Its means are those of the values, and the differences are those of pairs, by plain means.

    An AUC is a mean over positives, of which a query may have several; differences are over queries.
    """
    paths = sorted((equal_time.RECORD.parent / "equal_time").glob(f"{files}-*.npz"))
    written = json.loads(equal_time.RECORD.read_text())["cells"][cell]
    assert json.loads(json.dumps(equal_time.record(paths)))["cells"] == {cell: written}
    values = {(one["rule"], one["seed"]): one["values"] for path in paths for one in online.read(path)}
    for rule, mean in written["comparing, test"].items():
        if mean is not None and not cell.endswith("auc"):
            assert np.mean([values[rule, seed].mean() for seed in equal_time.COMPARING]) == pytest.approx(
                mean, abs=1e-5
            )
    for one in written["run"]:
        gaps = [values["run", seed].mean() - values[one["against"], seed].mean() for seed in equal_time.COMPARING]
        assert np.mean(gaps) == pytest.approx(one["mean"], abs=1e-5)
