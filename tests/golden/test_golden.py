"""Golden runs: a short seeded run of each model comes to what is on record, to a hundred-thousandth."""

import json

import pytest

from golden_runs import RUNS, arguments, write_data
from make_golden import GOLDEN, summary

RECORD = json.loads(GOLDEN.read_text())
CLOSE = 1e-5
ROUNDING = "attention.projections.bias"
"""Attention does not depend on the bias of its keys. Their gradient is a rounding error, which Adam makes as large as
any other, so that the norm of these biases differs from one kind of CPU to the next."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("golden") / "data")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEGWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def numbers(found, name=""):
    """Every number of a summary by its place in it."""
    if isinstance(found, dict):
        return {place: value for key, part in found.items() for place, value in numbers(part, f"{name}/{key}").items()}
    if isinstance(found, list):
        return numbers(dict(enumerate(found)), name)
    return {name: found}


@pytest.mark.parametrize("model", RUNS)
def test_a_golden_run_is_what_it_was(model, data, negwise, tmp_path):
    code, _, error = negwise(*arguments(model, data, tmp_path / "run"))
    assert code == 0, error
    found, known = (numbers(one) for one in (summary(tmp_path / "run"), RECORD[model]))
    assert found.keys() == known.keys()
    for place in [place for place in known if place.endswith(ROUNDING)]:
        del found[place], known[place]
    assert found == pytest.approx(known, rel=CLOSE, abs=CLOSE)
