import csv

import numpy as np
import pytest
from scipy.stats import norm

import negwise as nw
from negwise.report import paper_figures


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    out = tmp_path_factory.mktemp("theory")
    paths = paper_figures.reproduce_theory(out)
    return {path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in paths if path.suffix == ".csv"}


def column(rows, name):
    return np.array([float(row[name]) for row in rows])


def test_distributions_are_normal_densities(tables):
    rows = [row for row in tables["score-distributions"] if row["scores"] == "positives" and "2.4" in row["panel"]]
    np.testing.assert_allclose(column(rows, "density"), norm.pdf(column(rows, "score"), 2.4), rtol=1e-12)


def test_optimal_k_is_the_estimates(tables):
    row = min(tables["optimal-k"], key=lambda row: abs(float(row["separation"]) - 2.4))
    assert float(row["k"]) == pytest.approx(nw.optimal_k(float(nw.auc(2.4))).k, rel=1e-6)
    least = min(tables["optimal-k"], key=lambda row: float(row["k"]))
    assert 0.8 < float(least["separation"]) < 1.2  # K* grows to either side, as the paper says
    assert {row["verdict"] for row in tables["optimal-k"] if float(row["separation"]) < 0.55} == {"vacuous"}


@pytest.mark.parametrize("mu", [1.0, 2.4, 4.07, 4.5])
def test_stages(tables, mu):
    rows = tables[f"stages-{mu:g}"]
    assert sorted({float(row["stage"]) for row in rows}) == list(paper_figures.STAGES)
    last = {
        kind: column([r for r in rows if r["kind"] == kind and float(r["stage"]) == 1.0], "value")
        for kind in ("good", "bad")
    }
    np.testing.assert_allclose(last["good"], last["bad"], atol=1e-12)  # the paper: they overlap in the last plot
    for row in rows[:: len(rows) // 40]:
        good, bad, easy = nw.sample_kinds(mu, float(row["stage"]) * mu, float(row["k"]))
        expected = {"good": good, "bad": bad, "easy": easy, "effectiveness v": 0.9 * (good - bad) + 0.1 * easy}
        assert float(row["value"]) == pytest.approx(float(expected[row["kind"]]), abs=1e-12)


def test_lambdas(tables):
    rows = tables["effectiveness-by-lambda"]
    assert sorted({float(row["lambda"]) for row in rows}) == list(paper_figures.LAMS)
    assert len({row["panel"] for row in rows}) == 4


def test_auc_curve(tables):
    rows = tables["auc-separation"]
    np.testing.assert_allclose(column(rows, "auc"), norm.cdf(column(rows, "separation") / np.sqrt(2)), rtol=1e-12)


def test_ans_rises_to_its_peak_at_a_tenth(tables):
    rows = [row for row in tables["ans"] if "peak 20" in row["rule"]]
    np.testing.assert_allclose(
        column(rows, "k"), np.interp(column(rows, "fraction"), [0, 0.1, 1], [1, 20, 1]), rtol=1e-12
    )


def test_numbers_said_in_titles_follow_from_the_formula():
    stated = {4.07: 936, 4.5: 3713}
    for mu, k in stated.items():
        assert round(nw.optimal_k(float(nw.auc(mu))).k) == k
