"""What a request comes to: tasks, names, arms, learning rates; and requests that cannot be."""

import pytest

from evidence.analysis import Analysis
from evidence.protocol import Protocol
from evidence.reproduce import Asked, protocol_of, reproduce, task_of
from negwise.errors import InputError, NegwiseError


@pytest.mark.parametrize("wrong", [{"data": "nowhere"}, {"data": "docs", "vectors": "nowhere.npy"}])
def test_what_is_not_there_is_told_before_anything_runs(tmp_path, wrong):
    with pytest.raises(InputError, match="nowhere"):
        reproduce(Asked(task="matching", device="cpu", **wrong), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_requests_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match="expected one of news, matching, items"):
        protocol_of(Asked(task="music", data="x"), tmp_path)
    for wrong, message in (
        ({"k": (1,)}, "k: got 1, expected whole numbers above 1"),
        ({"k": (0, 4)}, "k: got 0, 4, expected whole numbers"),
        ({"seeds": 0}, "seeds: got 0, expected 1 or more"),
        ({"steps": 0}, "steps: got 0, expected 1 or more"),
        ({"model": "nrms"}, "model: got 'nrms', expected one of bert4rec for items"),
        ({"turning": (0.1, 0.0)}, "turning: got 0.1, 0, expected shares of the steps between 0 and 1"),
        ({"turning": (1.5,)}, "turning: got 1.5, expected shares"),
        ({"turning": (0.2, 0.2)}, "turning: got 0.2, 0.2, expected each once"),
        ({"name": "a/b"}, "name: got 'a/b', expected letters, digits and dashes, as items-long"),
        ({"name": "../x"}, "name: got '../x'"),
        ({"name": ""}, "name: got ''"),
        ({"name": "news"}, "name: got 'news', which is that of something else"),
        ({"name": "pace"}, "name: got 'pace', which is that of something else"),
        ({"paper": True, "steps": 100}, "steps: got 100, but the paper's settings say 50 epochs"),
    ):
        with pytest.raises(InputError, match=message):
            protocol_of(Asked(task="items", data="x", device="cpu", **wrong), tmp_path)


@pytest.mark.parametrize(("asked", "used"), [(None, "32-true"), ("bf16-mixed", "bf16-mixed"), ("64-true", "64-true")])
@pytest.mark.parametrize("paper", [False, True])
def test_the_precision_that_is_asked_for_is_the_runs(tmp_path, monkeypatch, asked, used, paper):
    """None is the task's on a GPU, and float32 on a CPU."""
    monkeypatch.setattr("evidence.tasks.steps_of", lambda *_: 100)
    words = Asked(task="items", data="x", device="cpu", precision=asked, paper=paper)
    assert protocol_of(words, tmp_path).base.precision == used
    assert task_of(words).size["precision"] == (asked or ("32-true" if paper else "bf16-mixed"))


def test_names_of_records():
    def name(**asked):
        return task_of(Asked(**{"task": "matching", "data": "x.jsonl", **asked})).name

    assert name() == name(model="siamese-transformer") == "matching"
    assert name(model="siamese-cnn") == "matching-siamese-cnn" and name(paper=True) == "matching-paper"
    assert name(data="docs") == "docs" and name(data="docs", model="siamese-lstm") == "docs-siamese-lstm"
    assert name(task="items", steps=6000, k=(20, 100, 1000), name="items-long") == "items-long"


def test_another_model_has_its_k_searched_as_far_as_the_tasks_own():
    task = task_of(Asked(task="matching", data="x", model="siamese-cnn", k=(100,), seeds=3))
    assert (task.ks, task.max_k, task.seeds) == ((1, 100), 500, 3)
    assert task_of(Asked(task="matching", data="x", k=(100,))).max_k == 100


def test_the_papers_k_stays_beside_other_k():
    task = task_of(Asked(task="matching", data="x", paper=True, k=(20,)))
    assert task.ks == (1, 20, 180) and task.max_k == 500 and task.rates == (1e-4,)
    assert (task.size["batch_size"], task.epochs) == (32, 5)


@pytest.mark.parametrize("star", [1, 13])
def test_turning_points_are_arms_up_to_k(tmp_path, monkeypatch, star):
    monkeypatch.setattr(Protocol, "k_star", property(lambda _: star))
    monkeypatch.setattr(Protocol, "rate_near", lambda _, k: k / 1000)
    asked = Asked(task="items", data="x", turning=(0.01, 0.1, 0.5), device="cpu")
    protocol = protocol_of(asked, tmp_path)
    cells = [cell for grid in protocol.rated(protocol.turnings, "turning") for cell in grid.runs(grid.arms[0])]
    expected = [(f"ans:13:{point}", seed) for point in ("0.01", "0.5") for seed in range(5)] if star > 1 else []
    assert [(cell.request.k, cell.request.seed) for cell in cells] == expected
    assert {cell.request.learning_rate for cell in cells} <= {0.013}  # that of K*


def test_schedules_that_cannot_be_are_said_to_be_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(Protocol, "k_star", property(lambda _: 1))
    monkeypatch.setattr(Protocol, "k_best", property(lambda _: 1))
    monkeypatch.setattr(Protocol, "rate_near", lambda *_: 0.1)
    monkeypatch.setattr(Protocol, "_tune", lambda *_: None)
    monkeypatch.setattr(Protocol, "_train", lambda *_, **__: None)
    told = []
    protocol_of(Asked(task="items", data="x", turning=(0.3,), device="cpu"), tmp_path).run(told.append)
    assert told[1] == "items: no schedule rises to 1, so none up to K* is trained."


def test_a_pilot_that_failed_says_why(tmp_path):
    asked = Asked(task="items", data="x", k=(4,), steps=2, seeds=1, device="cpu")
    protocol = protocol_of(asked, tmp_path)
    with pytest.raises(NegwiseError, match="the pilot has not ended \\(it was stopped\\)"):
        protocol.estimate_of_seed(0)
    folder = protocol.tuned(1).tuning_runs(protocol.tuned(1).arms[0])[1].folder
    folder.mkdir(parents=True)
    (folder / "failed.json").write_text('{"error": "the disk is full"}')
    with pytest.raises(NegwiseError, match="the pilot has not ended \\(the disk is full\\)"):
        protocol.estimate_of_seed(0)


def test_a_predicted_k_counts_as_the_nearest_trained_one(tmp_path):
    record = {"arms": [{"rule": str(k), "seeds": [{}]} for k in (1, 4, 100)], "seeds": [0]}
    analysis = Analysis(tmp_path, record)
    assert [analysis.nearest(k) for k in (1, 1.9, 2.1, 19, 21, 10**6)] == [1, 1, 4, 4, 100, 100]
