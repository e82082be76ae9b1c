"""The verbs as functions: the options' names, the request's checks, result objects."""

import importlib
import inspect
import json
import pkgutil

import pytest

import negwise as nw
from negwise.requests import DataRequest, RunRequest, SweepRequest, TrainRequest, options_of

TINY = {"model": "siamese-cnn", "steps": 4, "batch_size": 16, "queries": 40}


@pytest.fixture(scope="module", autouse=True)
def every_module():
    """A module that is imported becomes an attribute of its package: none may hide a function."""
    for found in pkgutil.walk_packages(nw.__path__, "negwise."):
        if found.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except ImportError as error:  # the frameworks and the kernels' own package are not everywhere
            assert found.name.startswith("negwise.integrations.") or error.name == "triton", error


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"query": f"what is number {n}", "positive": f"it is the answer {n * n}"} for n in range(300)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_no_package_shares_a_name_with_a_function():
    packages = {name.split(".")[1] for _, name, _ in pkgutil.walk_packages(nw.__path__, "negwise.")}
    assert not packages & set(nw.__all__)


@pytest.mark.parametrize(
    ("verb", "kind"), [("data", DataRequest), ("train", TrainRequest), ("run", RunRequest), ("sweep", SweepRequest)]
)
def test_a_verb_has_the_options_of_its_request(verb, kind):
    function = getattr(nw, verb)
    assert set(inspect.signature(function).parameters) == set(options_of(kind))
    assert all(option.help in function.__doc__ for name, option in options_of(kind).items() if name != "data")


def test_data(pairs):
    report = nw.data(pairs)
    assert report.counts["pairs"] == 300
    assert report.to_dict() == json.loads(json.dumps(report.to_dict()))
    assert nw.data(pairs, columns={"left": "positive", "right": "query"}).counts["pairs"] == 300


def test_train(pairs, tmp_path):
    result = nw.train(pairs, k=3, out=tmp_path / "run", **TINY)
    assert result.folder == tmp_path / "run"
    assert result.record.steps == 4
    assert 0 <= result.record.evaluations["test"].auc <= 1
    assert result.model.score(["one", "two"], ["three", "four", "five"]).shape == (2, 3)
    again = nw.train(pairs, k="3", out=str(tmp_path / "run"), **TINY)  # the same request in other types
    assert again.to_dict() == result.to_dict()


def test_run(pairs, tmp_path):
    result = nw.run(pairs, out=tmp_path / "job", **TINY)
    assert result.folder == tmp_path / "job"
    assert result.metric == "hit@5"
    assert result.k == 64  # the least that K for a metric is
    assert result.model.score(["one"], ["two", "three"]).shape == (1, 2)
    assert result.to_dict() == json.loads(json.dumps(result.to_dict()))


def test_sweep(pairs, tmp_path):
    result = nw.sweep(pairs, out=tmp_path / "job", k=[1, 2], jobs=1, seeds=1, **TINY)
    assert [arm.name for arm in result.record.arms] == ["1", "2"]
    assert result.k in (1, 2)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: nw.train("docs", kk=3), "kk: got an option that is not known; did you mean k?"),
        (lambda: nw.train("docs", zzzzz=3), "zzzzz: got an option that is not known; expected one of data, out, model"),
        (lambda: nw.train("docs", k=[3]), r"k: got \[3\] of type list, expected a text"),
        (lambda: nw.train("docs", k=True), "k: got True of type bool"),
        (lambda: nw.train("docs", steps="4"), "steps: got '4', expected a whole number"),
        (lambda: nw.train("docs", correct=1), "correct: got 1, expected True or False"),
        (lambda: nw.train("docs", columns="user=a"), "columns: got 'user=a', expected a dictionary"),
        (lambda: nw.train("docs", learning_rate="x"), "learning_rate: got x, expected a number above 0"),
        (lambda: nw.sweep("docs", out="s", learning_rate="1e-3,x"), "--learning-rate: got '1e-3,x'"),
        (lambda: nw.sweep("docs"), "out: got nothing, expected a value: The folder of the sweep"),
        (lambda: nw.data(3.5j), "data: got 3.5j of type complex"),
        (lambda: nw.run("docs", budget="soon"), "budget: got 'soon', expected a time such as 90s"),
    ],
)  # fmt: skip
def test_a_wrong_call_says_what_to_type(call, said):
    with pytest.raises(nw.InputError, match=said):
        call()
