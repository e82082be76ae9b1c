"""Golden runs: a short seeded run of each model comes to what is on record, to a hundred-thousandth."""

import json

import pytest

from golden_runs import RUNS, arguments, write_data
from make_golden import GOLDEN, summary

RECORD = json.loads(GOLDEN.read_text())
CLOSE = 1e-5


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
    assert numbers(summary(tmp_path / "run")) == pytest.approx(numbers(RECORD[model]), rel=CLOSE, abs=CLOSE)
