"""The curve of the share of the gain: what the package has is what the records give."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from evidence.__main__ import app
from evidence.gain import Shares, curve, envelope_errors, fit, fit_records, measured_shares
from evidence.record import ranks_of
from negwise.theory import gain

RECORDS = Path(__file__).parents[2] / "evidence" / "records"


def test_the_constants_are_the_fit():
    found = fit_records(RECORDS)
    assert found["scale"] == pytest.approx(gain.TOP_N_SCALE, abs=0.005)
    assert found["power"] == pytest.approx(gain.TOP_N_POWER, abs=0.0005)
    assert found["AUC, error on all"] == pytest.approx(gain.AUC_ERROR, abs=0.005)
    errors = [value for name, value in found.items() if name.startswith("top n")]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(gain.TOP_N_ERROR, abs=0.005)
    shown = CliRunner().invoke(app, ["gain", "--json"])
    assert shown.exit_code == 0 and json.loads(shown.stdout) == pytest.approx(found)


def test_shares_are_counted_by_hand():
    """hit@10 of the docstrings, K = 20, seed by seed in plain loops."""
    ranks = ranks_of(RECORDS, "docs-ten")
    seeds = sorted({seed for _, seed in ranks})

    def hits(rule):
        found = [ranks[rule, seed].above.tolist() for seed in seeds]
        return np.mean([sum(above < 10 for above in one) / len(one) for one in found])

    best = max(hits(str(k)) for k in (4, 10, 16, 20, 50, 100, 200, 500))
    shares = measured_shares(RECORDS, ("docs-ten",), (10,))
    assert shares.share[shares.k == 20][0] == pytest.approx((hits("20") - hits("1")) / (best - hits("1")))


def test_errors_in_auc_are_those_of_a_straight_count():
    """Docstrings, K = 20: test AUC of ten seeds from the record, v from the estimate's own curve."""
    record = json.loads((RECORDS / "docs-ten.json").read_text())
    quality = {arm["rule"]: np.mean([run["test"]["auc"] for run in arm["seeds"]]) for arm in record["arms"]}
    fixed = sorted((rule for rule in quality if rule.isdigit()), key=int)
    measured = (quality["20"] - quality["1"]) / (max(quality[rule] for rule in fixed) - quality["1"])
    found = envelope_errors(RECORDS)["docs-ten"][fixed.index("20") - 1]
    assert found == pytest.approx(measured - 1, abs=1e-3)  # K* is 16, so that v's envelope has all of it at 20


def test_a_curve_that_is_there_is_found():
    k, ratio = np.tile([4.0, 20.0, 100.0, 500.0], 3), np.repeat([30.0, 300.0, 3000.0], 4)
    assert fit(Shares(k, ratio, curve(k, ratio, 1.7, 0.31))) == pytest.approx((1.7, 0.31), rel=1e-6)
