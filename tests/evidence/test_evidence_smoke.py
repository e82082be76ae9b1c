"""One tiny cell of each task of the evidence on a CPU, and the whole protocol on the smallest of them."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from evidence import clicks as simulated
from evidence.analysis import fit_of, load_analysis
from evidence.protocol import Protocol
from evidence.record import collect, ranks_of, write
from evidence.reproduce import Asked, protocol_of, reproduce
from evidence.stopwatch import reproduce_seconds
from evidence.tables import sweep, tuning, worth
from evidence.tasks import TASKS
from evidence.truth import truths
from negwise import auc
from negwise.errors import InputError
from negwise.jobs import train_run
from negwise.metrics import evaluate
from negwise.requests import TrainRequest
from negwise.tasks import load_data

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
        train_run(replace(cell.request, out=str(cell.folder)), show=False, any_k=True)


@pytest.mark.parametrize("task", TASKS)
def test_a_cell_of_each_task(task, cache):
    data = {"news": lambda _: "clicks", "matching": pairs, "items": walks}[task](cache)
    asked = Asked(task=task, data=str(data), k=(4,), steps=2, seeds=1, fields=TINY[task], device="cpu")
    protocol = protocol_of(asked, cache / "out")
    grid = protocol.tuned(4)
    cell = grid.tuning_runs(grid.arms[0])[0]
    result = train_run(replace(cell.request, out=str(cell.folder)), show=False).record
    assert result.steps == 2 and 0 <= result.evaluations["test"].auc <= 1
    assert TASKS[task].top_n in result.evaluations["test"].metrics
    assert (cell.folder / "test_ranks.safetensors").exists()


OTHERS = {
    "naml": {"hidden": 8, "embedding": 8, "pooling": 8},
    "lstur": {"hidden": 8, "embedding": 8},
    "siamese-cnn": {"hidden": 8, "embedding": 8},
    "siamese-lstm": {"hidden": 8, "embedding": 8},
}


@pytest.mark.parametrize("model", OTHERS)
def test_a_cell_of_each_other_model(model, cache):
    task = "matching" if model.startswith("siamese") else "news"
    data = str(pairs(cache)) if task == "matching" else "clicks"
    fields = {**TINY[task], "settings": OTHERS[model]}
    asked = Asked(task=task, data=data, model=model, k=(4,), steps=2, seeds=1, fields=fields, device="cpu")
    protocol = protocol_of(asked, cache / "out")
    cell = protocol.tuned(1).tuning_runs(protocol.tuned(1).arms[0])[1]
    result = train_run(replace(cell.request, out=str(cell.folder)), show=False).record
    saved = json.loads((cell.folder / "config.json").read_bytes())["run"]
    assert result.steps == 2 and saved["model"] == model and saved["learning_rate"] == TASKS[task].rate
    assert protocol.task.name == f"{task}-{model}" and protocol.task.peaks == ("K*",)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A whole protocol, its record and its standings."""
    out = tmp_path_factory.mktemp("evidence")
    asked = Asked(
        task="news",
        data="clicks",
        k=(1, 3, 6),
        steps=12,
        seeds=2,
        turning=(0.1, 0.5),
        fields=TINY["news"],
        device="cpu",
    )
    protocol = replace(protocol_of(asked, out / "runs"), work=here)
    protocol.run(lambda _: None)
    record, ranks = collect(protocol, "cpu")
    write(record, ranks, out)
    return protocol, load_analysis(out, "news")


@pytest.mark.slow
def test_the_protocol_trains_what_the_plan_says(done):
    protocol, analysis = done
    record = analysis.record
    rules = [arm["rule"] for arm in record["arms"]]
    fixed = sorted({1, 3, 6, record["k_star"]})
    peaks = [k for k in dict.fromkeys((record["k_star"], record["k_best"])) if k > 1]
    schedules = [f"{kind}:{k}" for k in peaks for kind in ("ans", "warm")]
    turning = (
        [f"ans:{record['k_star']}:0.5"] if record["k_star"] > 1 else []
    )  # ANS's own turning point is there already
    assert rules == [*map(str, fixed), *schedules, *turning]
    roles = ["fixed"] * len(fixed) + ["schedule"] * len(schedules) + ["turning"] * len(turning)
    assert [arm["role"] for arm in record["arms"]] == roles
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
def test_a_folder_with_other_runs_is_refused(done):
    protocol, _ = done
    protocol.check()
    for other in ({"steps": 24}, {"model": "naml"}, {"batch_size": 8}):
        (name,) = other
        with pytest.raises(
            InputError, match=f"the request changed since: {name} was .* and is .*Choose another folder"
        ):
            replace(protocol, base=replace(protocol.base, **other)).check()


@pytest.mark.slow
def test_a_run_with_another_rate_does_not_count(done):
    """With other K in the sweep another rate may be nearest; what is there was trained with the first."""
    protocol, _ = done
    cell = protocol.tuned(1).runs(protocol.tuned(1).arms[0])[0]
    other = replace(cell, request=replace(cell.request, learning_rate=0.5))
    protocol._work([cell])
    with pytest.raises(InputError, match=r"trained with learning rate .*, and this request trains it with 0\.5"):
        protocol._work([other])


@pytest.mark.slow
def test_an_arm_that_lacks_a_seed_is_not_the_best(done, monkeypatch):
    protocol, _ = done
    found = {"1": [0.6, 0.6], "3": [0.9], "6": [0.7, 0.5]}
    monkeypatch.setattr(Protocol, "k_star", property(lambda _: 3))
    monkeypatch.setattr(Protocol, "val_aucs", lambda _, rule: found[rule])
    assert protocol.k_best == 1  # equal means: the smaller
    found["3"] = [0.9, 0.9]
    assert protocol.k_best == 3


@pytest.mark.slow
def test_seconds_of_a_folder(done):
    """Every fixed K has three times, the median of them counts, and the record carries it from then on."""
    protocol, _ = done
    record, ranks = collect(protocol, "cpu")
    assert "pace" not in record
    write(record, ranks, protocol.out)
    told = []
    (pace, again) = reproduce_seconds(protocol.out, steps=12, device="cpu", tell=told.append)
    found, record = json.loads(pace.read_bytes()), json.loads(again.read_bytes())
    ks = [arm["rule"] for arm in record["arms"] if arm["role"] == "fixed"]
    assert list(found["ms"]) == ks and len(told) == 3 * len(ks) and found["machine"]["device"] == "cpu"
    for k in ks:
        assert sorted(found["repeats"][k])[1] == found["ms"][k] > 0
        assert record["pace"]["ms"][k] == pytest.approx(found["ms"][k], rel=1e-5)
    assert collect(protocol, "cpu")[0]["pace"] == record["pace"]  # the protocol, run again, keeps it

    found["repeats"][ks[-1]].pop()  # stopped before the last turn: only that one is timed
    pace.write_text(json.dumps(found))
    told.clear()
    reproduce_seconds(protocol.out, steps=12, device="cpu", tell=told.append)
    assert len(told) == 1 and f"K = {ks[-1]}," in told[0]
    with pytest.raises(InputError, match=r"timed with steps 12, and it is 13 now.*remove that file"):
        reproduce_seconds(protocol.out, steps=13, device="cpu")


@pytest.fixture
def alone(monkeypatch):
    """Every protocol works in this process."""
    work = lambda _, cells: here(c for c in cells if not (c.folder / "result.json").exists())  # noqa: E731
    monkeypatch.setattr(Protocol, "_work", work)


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_the_papers_settings_end_to_end(cache):
    world = {**WORLD, "impressions": 400}
    fields = {"world": world, "settings": SMALL, "history": 6, "title_words": 8}
    asked = Asked(task="news", data="clicks", paper=True, seeds=2, fields=fields, device="cpu")
    files = reproduce(asked, cache / "out", tell=lambda _: None)
    assert [file.name for file in files] == ["news-paper.json", "news-paper.safetensors"]
    record = json.loads(files[0].read_bytes())
    star = record["k_star"]
    at_star = [f"ans:{star}", f"warm:{star}"] if star > 1 else []
    assert [arm["rule"] for arm in record["arms"]] == [*map(str, sorted({1, 4, star})), *at_star]
    assert {run["learning_rate"] for arm in record["arms"] for run in arm["seeds"]} == {1e-4}
    assert (record["of"], record["variant"], record["max_k"]) == ("news", "paper", 100)
    # Two epochs of the training split of the first fold, 32 at a time.
    clicks = len(load_data(TrainRequest(data="clicks", model="nrms", split="user", folds=5, **fields)).train)
    assert record["steps"] == 2 * -(-clicks // 32) and record["settings"]["precision"] == "32-true"
    assert not list((cache / "out").glob("tuning/*"))
    evaluated = record["arms"][0]["seeds"][0]["curve"]["val"]["step"]
    assert evaluated[0] == 0 and evaluated[-1] == record["steps"] and len(evaluated) <= 1 + 12
    config = json.loads((cache / "out/arms/4/seed-1/config.json").read_bytes())
    assert config["training"]["batch_size"] == 32 and config["optimizer"]["lr"] == 1e-4


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_another_model_end_to_end(cache, monkeypatch):
    """The issue's four arms and the largest K, whatever K is best on validation."""
    monkeypatch.setattr(Protocol, "k_star", property(lambda _: 3))
    fields = {**TINY["news"], "settings": OTHERS["naml"]}
    asked = Asked(task="news", data="clicks", model="naml", k=(6,), seeds=2, steps=3, fields=fields, device="cpu")
    record = json.loads(reproduce(asked, cache / "out", tell=lambda _: None)[0].read_bytes())
    assert [arm["rule"] for arm in record["arms"]] == ["1", "3", "6", "ans:3", "warm:3"]
    assert all(len(arm["seeds"]) == 2 for arm in record["arms"])
    assert (record["task"], record["of"], record["variant"]) == ("news-naml", "news", "model")
    assert record["title"] == "News recommendation: NAML on a sample of MIND"
    with pytest.raises(InputError, match="model was 'naml' and is 'nrms'"):  # and no record of the wrong model
        reproduce(replace(asked, model=None, fields=TINY["news"]), cache / "out", tell=lambda _: None)
    assert [file.name for file in (cache / "out").glob("*.json")] == ["news-naml.json"]


@pytest.mark.slow
def test_endpoints_by_hand(done):
    _, analysis = done
    tests = {arm["rule"]: np.mean([run["test"]["auc"] for run in arm["seeds"]]) for arm in analysis.record["arms"]}
    star, best = str(analysis.k_star), str(analysis.k_best)
    assert analysis.difference(star, "1").mean == pytest.approx(tests[star] - tests["1"], abs=1e-6)
    assert analysis.regret(1).mean == pytest.approx(tests[best] - tests["1"], abs=1e-6)
    assert analysis.regret(10**6).mean == pytest.approx(tests[best] - tests["6"], abs=1e-6)
    if analysis.highest("auc") > 1:
        highest = tests[str(analysis.highest("auc"))]
        expected = (tests[star] - tests["1"]) / (highest - tests["1"])
        assert analysis.share_at(analysis.k_star, "auc") == pytest.approx(expected, abs=1e-3)
    assert f"{tests['1']:.4f}" in sweep(analysis) and f"| {best} |" in worth({"news": analysis})
    ranks = ranks_of(analysis.folder, "news")
    assert evaluate(ranks["1", 0]).auc.value == pytest.approx(
        analysis.record["arms"][0]["seeds"][0]["test"]["auc"], abs=1e-6
    )


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_clicks_end_to_end(cache):
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
    assert np.array_equal(truth.regret, truth.seeds[truth.k_best] - truth.seeds[truth.k_star])
    assert truth.tests[truth.k_best] == pytest.approx(np.mean(arm["test"]))
    # at K = 1 P(B) is the AUC that the run itself logged
    log = [json.loads(line) for line in next(cache.rglob("watched/run.jsonl")).read_text().splitlines()]
    told = [line["auc"] for line in log if line["kind"] == "eval" and line["split"] == "val"]
    assert np.array(seen["p_b"])[:, 0] == pytest.approx(told, abs=1e-5)
    with pytest.raises(InputError, match="steps was 12 and is 13"):  # and the record stays
        simulated.reproduce_clicks(cache / "clicks", k=(1, 4), seeds=2, steps=13, worlds=[world], tell=lambda _: None)
    with pytest.raises(KeyboardInterrupt):  # stopped before the first world is through
        simulated.reproduce_clicks(cache / "clicks", k=(1, 4), seeds=2, steps=12, worlds=[world], tell=stop)
    assert json.loads(file.read_bytes()) == record


def stop(_):
    raise KeyboardInterrupt


def test_shares_of_a_model_that_knows_the_truth():
    """Scored by the affinity itself, both events are one."""
    from negwise.datasets import clicks
    from negwise.tasks import evaluation_splits

    world = clicks(**WORLD)
    split = evaluation_splits(world.task(history=6))["val"]
    flat = np.concatenate(
        [np.arange(split.impressions.offsets[g], split.impressions.offsets[g + 1]) for g in split.groups]
    )
    whose = np.repeat(world.impressions.users, WORLD["shown"])[flat]
    score = np.einsum("nd,nd->n", world.items[split.impressions.ids[flat]], world.users[whose])
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


def test_a_watched_pilot_that_was_cut_off_begins_anew(cache, monkeypatch):
    training = TrainRequest(data="clicks", model="nrms", k="1", steps=6, eval_every=2, device="cpu", **TINY["news"])
    whole = simulated._watched(training, cache / "whole" / "watched")[:2]
    asked = []

    def cut(self, *given):
        asked.append(self)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return plain(self, *given)

    plain = simulated.Watched.ranks
    monkeypatch.setattr(simulated.Watched, "ranks", cut)
    with pytest.raises(KeyboardInterrupt):
        simulated._watched(training, cache / "watched")
    monkeypatch.undo()
    monkeypatch.setenv("NEGWISE_CACHE", str(cache / "cache"))
    for _ in range(2):  # from the start, and then from what was kept
        scores, steps = simulated._watched(training, cache / "watched")[:2]
        assert steps == whole[1] and np.array_equal(scores, whole[0])


def test_rates_that_failed_and_choices_that_are_open(done):
    _, one = done
    record = json.loads(json.dumps(one.record))
    first = next(iter(record["tuning"]))
    record["tuning"][first]["tried"][0]["val_auc"] = None
    record["tuning"]["99"] = None
    text = tuning({"news": replace(one, record=record)})
    assert "failed" in text and "| 99 |" not in text


def test_a_pilot_that_ranks_perfectly_can_be_read_again(done):
    _, one = done
    record = json.loads(json.dumps(one.record))
    curve = next(arm for arm in record["arms"] if arm["rule"] == "1")["seeds"][0]["curve"]["train"]
    curve["auc"][-1] = 1.0
    assert replace(one, record=record).k_at(0.9) >= 1
