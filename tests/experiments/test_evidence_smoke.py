"""One tiny cell of each task of the evidence on a CPU, and the whole protocol on the smallest of them."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from negwise.errors import InputError
from negwise.experiments.evidence import clicks as simulated
from negwise.experiments.evidence.analysis import Analysis, best_constant, fit_of, load_analysis
from negwise.experiments.evidence.protocol import Protocol
from negwise.experiments.evidence.record import collect, ranks_of, write
from negwise.experiments.evidence.reproduce import Asked, protocol_of
from negwise.experiments.evidence.tables import endpoints, sweep
from negwise.experiments.evidence.tasks import TASKS
from negwise.experiments.evidence.truth import truths
from negwise.experiments.training import Training, train
from negwise.metrics import evaluate
from negwise.theory.separation import auc

WORLD = {"users": 60, "items": 40, "impressions": 240, "shown": 8, "history": 6}
SMALL = {"heads": 2, "head_dim": 4, "embedding": 8, "pooling": 8}
TINY = {
    "news": {"world": WORLD, "history": 6, "title_words": 8, "settings": SMALL, "batch_size": 16},
    "matching": {"settings": {**SMALL, "layers": 1}, "batch_size": 8, "pool": 16, "skip_bad": 0},
    "items": {"settings": {"heads": 2, "head_dim": 4, "layers": 1}, "history": 8, "batch_size": 8},
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def pairs(folder):
    dice = random.Random(0)
    rows = [
        {"title": f"a{n} b{n % 9}", "body": f"c{n} d{n % 9} e{dice.randrange(50)} f{dice.randrange(50)}"}
        for n in range(150)
    ]
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def walks(folder):
    dice = random.Random(0)
    rows = [f"{user} {(start + step * dice.choice([1, 2])) % 30 + 1}" for user in range(1, 41)
            for start in [dice.randrange(30)] for step in range(9)]  # fmt: skip
    file = folder / "walks.txt"
    file.write_text("\n".join(rows) + "\n")
    return file


def here(cells):
    """Cells in this process, one after the other."""
    for cell in cells:
        train(Training(**cell.training), cell.folder, show=False)


@pytest.mark.parametrize("task", TASKS)
def test_a_cell_of_each_task(task, cache):
    data = {"news": lambda _: "clicks", "matching": pairs, "items": walks}[task](cache)
    asked = Asked(task=task, data=str(data), k=(4,), steps=2, seeds=1, fields=TINY[task], device="cpu")
    protocol = protocol_of(asked, cache / "out")
    grid = protocol.tuned(4)
    cell = grid.tuning(grid.arms[0])[0]
    result = train(Training(**cell.training), cell.folder, show=False)
    assert result["steps"] == 2 and 0 <= result["evaluations"]["test"]["auc"] <= 1
    assert TASKS[task].top_n in result["evaluations"]["test"]["metrics"]
    assert (cell.folder / "test_ranks.safetensors").exists()


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A whole protocol, its record and its standings."""
    out = tmp_path_factory.mktemp("evidence")
    asked = Asked(task="news", data="clicks", k=(1, 3, 6), steps=12, seeds=2, fields=TINY["news"], device="cpu")
    protocol = replace(protocol_of(asked, out / "runs"), work=here)
    protocol.run(lambda _: None)
    record, ranks = collect(protocol, "cpu")
    write(record, ranks, out)
    return protocol, load_analysis(out, "news", 200)


@pytest.mark.slow
def test_the_protocol_trains_what_the_plan_says(done):
    protocol, analysis = done
    record = analysis.record
    rules = [arm["rule"] for arm in record["arms"]]
    fixed = sorted({1, 3, 6, record["k_star"]})
    peaks = [k for k in dict.fromkeys((record["k_star"], record["k_best"])) if k > 1]
    assert rules == [str(k) for k in fixed] + [f"{kind}:{k}" for k in peaks for kind in ("ans", "warm")]
    assert all(len(arm["seeds"]) == 2 for arm in record["arms"])
    assert set(record["tuning"]) == {str(k) for k in {1, 6, record["k_star"]}}
    for arm in record["arms"]:
        near = min(sorted({1, 6, record["k_star"]}), key=lambda k: abs(np.log(arm["k"] / k)))
        assert {run["learning_rate"] for run in arm["seeds"]} == {record["tuning"][str(near)]["learning_rate"]}
        assert ("train" in arm["seeds"][0]["curve"]) == (arm["rule"] == "1")  # the pilot alone judges training
    assert record["settings"]["folds"] == 5

    count = sum(1 for _ in protocol.out.rglob("result.json"))
    protocol.run(lambda _: None)  # what is done stays done
    assert count == sum(1 for _ in protocol.out.rglob("result.json"))


@pytest.mark.slow
def test_endpoints_by_hand(done):
    _, analysis = done
    tests = {arm["rule"]: np.mean([run["test"]["auc"] for run in arm["seeds"]]) for arm in analysis.record["arms"]}
    star, best = str(analysis.k_star), str(analysis.k_best)
    assert analysis.difference(star, "1").mean == pytest.approx(tests[star] - tests["1"], abs=1e-6)
    assert analysis.regret(1).mean == pytest.approx(tests[best] - tests["1"], abs=1e-6)
    assert analysis.regret(10**6).mean == pytest.approx(tests[best] - tests["6"], abs=1e-6)
    captured = analysis.captured()
    if captured is not None:
        assert captured[0] == pytest.approx((tests[star] - tests["1"]) / (tests[best] - tests["1"]), abs=1e-3)
    assert best_constant([analysis]) in (1, 3, 6)
    assert f"{tests['1']:.4f}" in sweep(analysis) and f"{tests[best]:.4f}" in endpoints({"news": analysis})
    ranks = ranks_of(analysis.folder, "news")
    assert evaluate(ranks["1", 0]).auc.value == pytest.approx(
        analysis.record["arms"][0]["seeds"][0]["test"]["auc"], abs=1e-6
    )


@pytest.mark.slow
def test_clicks_end_to_end(cache, monkeypatch):
    monkeypatch.setattr(
        Protocol, "_work", lambda _, cells: here(c for c in cells if not (c.folder / "result.json").exists())
    )
    world = {"shape": "heavy", "noise": 1.0, **WORLD}
    (file,) = simulated.reproduce_clicks(
        cache / "clicks", k=(1, 4), seeds=2, steps=12, worlds=[world], tell=lambda _: None
    )
    record = json.loads(file.read_bytes())
    (truth,) = truths(record)
    seen = record["worlds"][0]["truth"]
    assert len(seen["p_b"]) == len(seen["steps"]) and len(seen["p_a"]) == len(seen["ks"])
    # P is a probability that falls with K, and both at once are rarer than either
    for name in ("p_b", "p_ab"):
        assert (np.diff(np.array(seen[name]), axis=1) <= 1e-9).all()
    assert (np.array(seen["p_ab"]) <= np.minimum(np.array(seen["p_a"]), np.array(seen["p_b"])) + 1e-6).all()
    arm = next(arm for arm in record["worlds"][0]["arms"] if arm["k"] == truth.k_best)
    assert truth.regret(truth.k_best) == 0 and truth.tests[truth.k_best] == pytest.approx(np.mean(arm["test"]))
    # at K = 1 P(B) is the AUC that the run itself logged
    log = [json.loads(line) for line in next(cache.rglob("watched/run.jsonl")).read_text().splitlines()]
    told = [line["auc"] for line in log if line["kind"] == "eval" and line["split"] == "val"]
    assert np.array(seen["p_b"])[:, 0] == pytest.approx(told, abs=1e-5)


def test_shares_of_a_model_that_knows_the_truth():
    """Scored by the affinity itself, both events are one."""
    from negwise.data import clicks
    from negwise.train import judged

    world = clicks(**WORLD)
    split = judged(world.task(history=6))["val"]
    flat = np.concatenate([np.arange(split.shown.offsets[g], split.shown.offsets[g + 1]) for g in split.groups])
    whose = np.repeat(world.impressions.users, WORLD["shown"])[flat]
    score = np.einsum("nd,nd->n", world.items[split.shown.ids[flat]], world.users[whose])
    a, b, both = simulated._shares(world, split, score)
    assert np.array_equal(a, b) and np.array_equal(a, both)
    _, b, both = simulated._shares(world, split, -score)
    assert b == pytest.approx(1 - a) and (both == 0).all()


def test_the_fit_finds_the_curve_that_it_was_given():
    steps = np.linspace(0, 900, 13)
    pilot = {
        "steps": steps.tolist(),
        "val_auc": auc(1.3 * (1 - np.exp(-steps / 150))).tolist(),
        "train_auc": auc(1.6 * (1 - np.exp(-steps / 150))).tolist(),
        "train_steps": steps.tolist(),
    }
    fit = fit_of(pilot, 1000.0)
    assert fit.mu == pytest.approx(1.3, rel=1e-3) and fit.tau == pytest.approx(150, rel=5e-3) and fit.largest < 1e-3


def test_requests_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match="expected one of news, matching, items"):
        protocol_of(Asked(task="music", data="x"), tmp_path)
    for wrong, message in (
        ({"k": (1,)}, "k: got 1, expected whole numbers above 1"),
        ({"k": (0, 4)}, "k: got 0, 4, expected whole numbers"),
        ({"seeds": 0}, "seeds: got 0, expected 1 or more"),
        ({"steps": 0}, "steps: got 0, expected 1 or more"),
    ):
        with pytest.raises(InputError, match=message):
            protocol_of(Asked(task="items", data="x", device="cpu", **wrong), tmp_path)


def test_a_predicted_k_counts_as_the_nearest_trained_one(tmp_path):
    record = {"arms": [{"rule": str(k), "seeds": [{}]} for k in (1, 4, 100)], "seeds": [0]}
    analysis = Analysis(tmp_path, record)
    assert [analysis.nearest(k) for k in (1, 1.9, 2.1, 19, 21, 10**6)] == [1, 1, 4, 4, 100, 100]
