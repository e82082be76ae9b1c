"""The explorer's page: the table that it carries, and that it is whole."""

import base64
import json
import re

import numpy as np
import pytest
from scipy.stats import norm

import negwise as nw
from negwise.report.explore import explore_page, reliability_grid, reliability_table, write_explore


@pytest.fixture(scope="module")
def page():
    return explore_page()


@pytest.fixture(scope="module")
def carried(page):
    """What the page's own script will read."""
    return json.loads(re.search(r'<script type="application/json" id="explore-data">(.*?)</script>', page)[1])


def decoded(data):
    values = np.frombuffer(base64.b64decode(data["reliability"]), dtype="<f4")
    return values.reshape(data["separations"]["count"], data["ks"]["count"]).astype(float)


def test_the_table_is_reliability_at_the_places_it_names(carried):
    first, step, count = (carried["separations"][name] for name in ("first", "step", "count"))
    separations = first + step * np.arange(count)
    ks = 10.0 ** (np.arange(carried["ks"]["count"]) / carried["ks"]["per_decade"])
    values = decoded(carried)
    np.testing.assert_allclose(values, nw.reliability(separations[:, None], ks), rtol=1e-6)
    assert ks[-1] == 1e6 and (first, separations[-1]) == (-2.0, pytest.approx(8.0))
    # Closed forms: an untrained model wins one time in K + 1, and with one negative P is the AUC.
    np.testing.assert_allclose(values[np.argmin(np.abs(separations))], 1 / (ks + 1), rtol=1e-6)
    np.testing.assert_allclose(values[:, 0], norm.cdf(separations / np.sqrt(2)), rtol=1e-6)


def test_log_odds_are_those_of_the_auc():
    separations, _ = reliability_grid()
    above, below = norm.cdf(separations / np.sqrt(2)), norm.sf(separations / np.sqrt(2))
    np.testing.assert_allclose(reliability_table()["log_odds"], np.log(above / below), rtol=1e-9, atol=1e-12)


def test_presets_are_the_estimates_of_a_training_auc_alone(carried):
    pairs = [preset for preset in carried["presets"] if "train" in preset]
    assert [pair["train"] for pair in pairs] == [0.75, 0.95, 0.998]
    for pair in pairs:
        # the simulated end, to the four digits that the page shows
        assert nw.optimal_k(pair["train"], pair["val"]).k == pytest.approx(nw.optimal_k(pair["train"]).k, rel=0.02)


def test_the_page_is_whole_and_small(page):
    assert len(page.encode()) < 200_000
    assert not re.search(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", page), "an address outside the page"
    assert not re.search(r"\b(?:src|href)=(?![\"'](?:#|data:))", page), "a reference to another file"
    assert "{{" not in page and "{%" not in page
    assert page.count("<script") == page.count("</script>")
    assert nw.__version__ in page


def test_write_explore_makes_the_folder_and_says_where(tmp_path, page):
    out = tmp_path / "new" / "explore.html"
    assert write_explore(out) == out
    assert out.read_text() == page
