"""Variants of the tasks: records made up here go through tables and figures; loops and SciPy say what must be there."""

import json
import math
import re
import subprocess

import numpy as np
import pytest
from scipy import stats

from negwise import metrics
from negwise.errors import InputError
from negwise.experiments.evidence import variants
from negwise.experiments.evidence.analysis import load_analysis
from negwise.experiments.evidence.claims import _beaten, _fallen, _helped, _schedules, _turnings
from negwise.experiments.evidence.page import Evidence, drawn, filled, loaded, tabled
from negwise.experiments.evidence.provenance import commit_of
from negwise.experiments.evidence.record import write
from negwise.experiments.evidence.seconds import auc_after, clock, per_second, seconds, step_seconds
from negwise.experiments.evidence.tables import predictors, primary, provenance
from negwise.experiments.evidence.turning import points, turning, turning_figure

QUERIES, SIZE = 80, 101


def make(
    folder,
    name="items",
    *,
    of=None,
    variant="",
    model="bert4rec",
    steps=24,
    arms=None,
    k_star=5,
    seeds=3,
    places=None,
    **more,
):
    """A record and its standings: one positive a query, each arm with places of its own, validation curves of three.

    ``places`` by rule, where the answer is to be known: how many candidates beat the positive, about.
    """
    rules = arms or ("1", "5", "100", "ans:5", "warm:5")
    dice = np.random.default_rng(sum(map(ord, name)))
    record_arms, ranks = [], {}
    for at, rule in enumerate(rules):
        runs = []
        for seed in range(seeds):
            above = np.minimum(dice.integers(0, SIZE, QUERIES), dice.integers(0, SIZE, QUERIES) + 3 * at)
            if places is not None:
                above = places[rule] + dice.integers(-1, 2, QUERIES)
            ones = np.ones_like(above)
            told = metrics.evaluate(metrics.Ranks(above, ones, ones, np.full_like(above, SIZE))).record()
            ranks |= {f"above/{rule}/{seed}": above, f"positives/{seed}": ones, f"sizes/{seed}": ones * SIZE}
            curve = {name: sorted(dice.random(3)) for name in ("auc", "ndcg@10")}
            scores = {"auc": told["auc"], "ndcg@10": told["metrics"]["ndcg@10"]}
            runs.append(
                {
                    "seed": seed,
                    "learning_rate": 0.001,
                    "test": scores,
                    "val": scores,
                    "recommended": None,
                    "curve": {"val": {"step": [0, steps // 2, steps], **curve}},
                }
            )
        role = "fixed" if rule.isdigit() else "turning" if rule.count(":") == 2 else "schedule"
        peak = float(rule.split(":")[1] if ":" in rule else rule)
        record_arms.append({"rule": rule, "k": peak, "role": role, "seeds": runs})
    record = {
        "task": name,
        "of": of or name,
        "variant": variant,
        "title": "Items",
        "data": {"name": "x", "digest": "same"},
        "settings": {"model": model, "folds": None, "batch_size": 8},
        "steps": steps,
        "seeds": list(range(seeds)),
        "ks": [1, 100],
        "top_n": "ndcg@10",
        "k_star": k_star,
        "k_best": 100,
        "arms": record_arms,
        **more,
    }
    write(record, ranks, folder)
    return load_analysis(folder, name, 300)


def scores_of(analysis, rule, metric="auc"):
    arm = next(arm for arm in analysis.record["arms"] if arm["rule"] == rule)
    return np.array([run["test"][metric] for run in arm["seeds"]])


def says(cell, *values):
    """The numbers of a cell, to its four digits: half a digit either way, and a little for ties."""
    told = [float(number) for number in re.findall(r"[+-]?\d+\.\d+", cell)]
    assert told == pytest.approx([float(value) for value in values], abs=5.1e-5), cell
    return True


def student(values):
    return values.mean(), *stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))


def rows_of(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_models_by_scipy(tmp_path):
    found = {one.name: one for one in (make(tmp_path), make(tmp_path, "items-sas", of="items", variant="model"))}
    chosen = variants.other_models(found)
    assert [one.name for one in chosen] == ["items", "items-sas"]
    rows = rows_of(variants.models(chosen))
    assert len(rows) == 4 and {row[1] for row in rows} == {"BERT4Rec"} and {row[2] for row in rows} == {"3"}
    for row, (one, metric) in zip(rows, [(one, m) for one in chosen for m in ("auc", "ndcg@10")], strict=True):
        for cell, rule in zip(row[5:9], ("1", "5", "ans:5", "warm:5"), strict=True):
            assert says(cell, *student(scores_of(one, rule, metric)))
        for cell, rule, other in ((row[9], "5", "1"), (row[10], "ans:5", "5")):
            assert says(cell, *student(scores_of(one, rule, metric) - scores_of(one, other, metric)))


def test_an_arm_that_was_not_run_is_said_to_be_missing(tmp_path):
    one = make(tmp_path, "items-sas", of="items", variant="model", arms=("1", "100"), k_star=1)
    (row, _) = rows_of(variants.models([one]))
    assert row[7:] == ["not run"] * 4


def test_the_paper_beside_tuned_settings(tmp_path):
    own = make(tmp_path)
    printed = make(tmp_path, "items-paper", of="items", variant="paper", arms=("1", "5", "20", "ans:5", "warm:5"))
    lonely = make(tmp_path, "news-paper", of="news", variant="paper", model="nrms", arms=("1", "4", "5"))
    found = {one.name: one for one in (own, printed, lonely)}
    pairs = variants.published(found)
    assert pairs == [(own, printed), (None, lonely)]
    rows = rows_of(variants.paper(pairs))
    assert [row[2] for row in rows] == ["tuned", "tuned", *["the paper's"] * 4]
    theirs = scores_of(printed, "20")
    assert rows[2][7].endswith("(20)") and says(rows[2][7], theirs.mean(), stats.sem(theirs))
    assert rows[0][7].endswith("(5)") and rows[4][7].endswith("(4)")  # 20 is nearer to 5 than to 100; 4 in news
    assert rows[4][8] == "not run"


def test_longer_training_is_told_from_other_variants(tmp_path):
    own = make(tmp_path)
    more = make(tmp_path, "items-long", of="items", steps=96, arms=("1", "7", "100"), k_star=7)
    others = [
        make(tmp_path, "items-short", of="items", steps=12),
        make(tmp_path, "items-elsewhere", of="items", steps=96, data={"name": "y", "digest": "other"}),
        make(tmp_path, "items-paper", of="items", steps=96, variant="paper"),
    ]
    pairs = variants.longer({one.name: one for one in (own, more, *others)})
    assert pairs == [(own, more)]
    rows = rows_of(variants.long(pairs))
    assert [row[1] for row in rows] == ["1", "**7**", "100"] and rows[0][2] == "24 and 96"
    assert rows[1][3] == "not run"
    seven = scores_of(more, "7")
    assert says(rows[1][4], seven.mean(), stats.sem(seven)) and rows[0][5:7] == ["", ""]
    for cell, one in zip(rows[2][5:7], (own, more), strict=True):
        assert says(cell, (scores_of(one, "100") - scores_of(one, "1")).mean(), *one.difference("100", "1").interval)


def test_a_task_again_with_more_seeds_and_tasks_of_their_own(tmp_path):
    own = make(tmp_path)
    more = make(tmp_path, "items-ten", of="items", seeds=6, data={"name": "renamed", "digest": "same"})
    docs = make(tmp_path, "docs", model="siamese-transformer", arms=("1", "5"))
    found = {one.name: one for one in (own, more, docs, make(tmp_path, "news", model="nrms"))}
    assert variants.again(found) == [own, more, docs]
    assert variants.again({"items": own}) == []
    rows = rows_of(variants.contrasts([own, more, docs]))
    assert [(row[0], row[1], row[2]) for row in rows[::2]] == [
        *((one, seeds, what) for one, seeds in (("items", "3"), ("items-ten", "6"))
          for what in ("5 against 1", "ans:5 against 5")),
        ("docs", "3", "5 against 1"),
    ]  # fmt: skip
    gaps = scores_of(more, "ans:5", "ndcg@10") - scores_of(more, "5", "ndcg@10")
    mean, low, high = student(gaps)
    assert rows[7][3] == "nDCG@10" and says(rows[7][4], mean) and says(rows[7][6], low, high)


TURNS = ("1", "5", "100", "ans:5", "warm:5", "ans:5:0.3", "ans:5:0.01")


def test_turning_points(tmp_path):
    one = make(tmp_path, arms=TURNS)
    assert list(points(one).items()) == [(0.01, "ans:5:0.01"), (0.1, "ans:5"), (0.3, "ans:5:0.3")]
    rows = rows_of(turning([one]))
    for row, rule in zip(rows, points(one).values(), strict=True):
        for cell, metric in zip(row[3:5], ("auc", "ndcg@10"), strict=True):
            gap = (scores_of(one, rule, metric) - scores_of(one, "5", metric)).mean()
            assert says(cell, gap, *one.difference(rule, "5", metric).interval)
        for cell, metric in zip(row[5:7], ("auc", "ndcg@10"), strict=True):
            gap = (scores_of(one, rule, metric) - scores_of(one, "ans:5", metric)).mean()
            assert cell == "" if rule == "ans:5" else says(cell, gap, *one.difference(rule, "ans:5", metric).interval)
    figure = turning_figure([one])
    assert figure.name == "turning" and len(figure.rows) == 2 * (3 + 1)
    for row in figure.rows:
        rule = "5" if row["of"] == "fixed" else points(one)[row["turning"]]
        values = scores_of(one, rule, row["metric"])
        error = values.std(ddof=1) / math.sqrt(3)
        assert row["value"] == pytest.approx(values.mean(), rel=1e-5)
        assert row["high"] - row["low"] == pytest.approx(2 * error, rel=1e-3)
    assert figure.svg().startswith("<svg")


@pytest.mark.parametrize("best", ["ans:5", "ans:5:0.3"])
def test_the_best_turning_point(tmp_path, best):
    one = make(tmp_path, arms=TURNS, places={rule: 10 if rule == best else 30 for rule in TURNS})
    if best == "ans:5":  # nothing is said to be better than itself
        assert _turnings([one]) == "On test AUC items is best at 0.1"
    else:
        told = _turnings([one])
        assert told.startswith("On test AUC items is best at 0.3: +0.2") and told.endswith("against 0.1")


@pytest.mark.parametrize(("half", "captured"), [(30, 0.5), (10, 1.0), (50, 0.0)])
def test_captured_gain_of_a_known_world(tmp_path, half, captured):
    """K = 1 has 50 of 100 above the positive, the best K 10, K* so many between."""
    one = make(tmp_path, places={"1": 50, "5": half, "100": 10, "ans:5": 30, "warm:5": 30})
    share, (low, high) = one.captured()
    assert share == pytest.approx(captured, abs=0.01) and low <= captured <= high and high - low < 0.05
    assert one.regret(5).mean == pytest.approx((half - 10) / 100, abs=0.005)


def test_captured_gain_means_nothing_where_there_is_none(tmp_path):
    assert make(tmp_path, places=dict.fromkeys(("1", "5", "100", "ans:5", "warm:5"), 30)).captured() is None


def test_the_words_of_the_claims_follow_from_the_records(tmp_path):
    better = make(tmp_path, "news", places={"1": 50, "5": 9, "100": 9, "ans:5": 40, "warm:5": 30})
    worse = make(tmp_path, "items", places={"1": 9, "5": 50, "100": 70, "ans:5": 5, "warm:5": 30}, k_best=5)
    plain = make(tmp_path, "docs", arms=("1", "100"), k_star=1)
    assert _beaten({"news": better}) == "Yes, on AUC and top n"
    assert _beaten({"news": better, "items": worse}).startswith("Not clearly everywhere")
    assert _helped({"news": better}) == [] and _helped({"news": better, "items": worse, "docs": plain}) == ["items"]
    assert _fallen({"news": better}) == "is flat" and _fallen({"news": better, "items": worse}) == "falls in items"
    assert "docs" not in _schedules({"items": worse, "docs": plain})


def test_tables_of_one_task_alone(tmp_path):
    """No other task has a constant, and K* = 1 has nothing to be compared with."""
    one = make(tmp_path)
    assert [row[0] for row in rows_of(predictors({"items": one}))][-1] == "always 100"
    assert len(rows_of(primary({"items": one}))) == 2
    assert rows_of(primary({"items": make(tmp_path, arms=("1", "100"), k_star=1)})) == []


def test_every_record_says_where_it_comes_from(tmp_path):
    """With the paper's settings no learning rate was tried."""
    whence = {"machine": {"name": "here"}, "versions": {"torch": "2"}, "code": {"source": "abc"}}
    one = make(tmp_path, **whence, tuning={"1": {"tried": []}, "100": None})
    assert rows_of(provenance({"items": one}))[0][2] == "15 + 0 for tuning"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seeds": 1}, "it has one seed, and an interval needs two"),
        ({"k_best": 20}, r"not every seed of K = 20 is done. Type the command that made it again"),
        ({"k_star": 7, "k_best": 20}, "not every seed of K = 7, 20 is done"),
    ],
)
def test_a_record_that_no_table_can_be_made_of(tmp_path, wrong, message):
    make(tmp_path, **wrong)
    with pytest.raises(InputError, match=rf"items\.json: {message}"):
        loaded(tmp_path)


def test_a_record_without_its_standings(tmp_path):
    make(tmp_path)
    (tmp_path / "items.safetensors").unlink()
    with pytest.raises(InputError, match=r"items\.safetensors is missing beside it"):
        loaded(tmp_path)


def test_records_of_no_task(tmp_path):
    make(tmp_path, "docs")
    with pytest.raises(InputError, match="expected the record of news, matching, items, found docs"):
        loaded(tmp_path)


def test_a_record_without_turning_points_has_none(tmp_path):
    one = make(tmp_path)
    assert points(one) == {} and _turnings([one]) == "not run"


PACE = {"ms": {"1": 2.0, "5": 3.0, "100": 8.0}, "machine": {"name": "here"}}


def by_hand(rule, steps):
    """Seconds of each step, K and time written out."""
    found = []
    for step in range(steps):
        share = step / (steps - 1)
        if rule == "ans":
            k = 1 + 4 * share / 0.1 if share <= 0.1 else 1 + 4 * (1 - share) / 0.9
        else:
            k = 1 + 4 * min(1, share / 0.1)
        found.append((2.0 + (3.0 - 2.0) * math.log(k) / math.log(5)) / 1000)
    return found


def test_seconds_of_a_schedule_by_loops(tmp_path):
    one = make(tmp_path, steps=40, pace=PACE)
    for rule in ("ans", "warm"):
        assert clock(one, f"{rule}:5") == pytest.approx([sum(by_hand(rule, 40)[:n]) for n in range(41)], abs=1e-12)
    assert clock(one, "5")[-1] == pytest.approx(40 * 0.003)
    between = 0.003 + 0.005 * math.log(20 / 5) / math.log(100 / 5)
    assert step_seconds(one, np.array([20.0])) == pytest.approx([between])
    with pytest.raises(InputError, match="K goes from 101 to 101, but steps were timed from 1 to 100"):
        step_seconds(one, np.array([101.0]))


def test_every_arm_at_the_time_of_fixed_k(tmp_path):
    one = make(tmp_path, steps=40, pace=PACE)
    budget = 40 * 0.003

    def curve(rule, seed):
        return next(arm for arm in one.record["arms"] if arm["rule"] == rule)["seeds"][seed]["curve"]["val"]["auc"]

    for seed in range(3):
        # K = 1 has ended by then; K = 100 has done 15 of its 40 steps, of which 20 lie between two evaluations
        assert auc_after(one, "1", budget)[seed] == pytest.approx(curve("1", seed)[2])
        first, second, _ = curve("100", seed)
        assert auc_after(one, "100", budget)[seed] == pytest.approx(first + (second - first) * 15 / 20)
    rows = {row[1]: row for row in rows_of(seconds([one]))}
    assert list(rows) == ["1", "**5**", "100", "ans:5", "warm:5"]
    assert rows["1"][2:5] == ["2.00", "0.1", "0.1"] and rows["1"][5].endswith(", its end after 0.1 s")
    assert rows["**5**"][6] == "" and "end" not in rows["100"][5]
    gaps = np.array([curve("1", seed)[2] - curve("5", seed)[2] for seed in range(3)])
    assert says(rows["1"][6], *student(gaps))


def test_the_figure_of_seconds(tmp_path):
    one = make(tmp_path, steps=40, pace=PACE)
    figure = per_second(one)
    assert figure.name == "items-seconds" and figure.svg().startswith("<svg")
    row = next(row for row in figure.rows if row["arm"] == "ans:5" and row["step"] == 20)
    assert row["seconds"] == pytest.approx(sum(by_hand("ans", 40)[:20]), rel=1e-5)
    curves = next(arm for arm in one.record["arms"] if arm["rule"] == "ans:5")["seeds"]
    assert row["auc"] == pytest.approx(np.mean([run["curve"]["val"]["auc"][1] for run in curves]), rel=1e-5)


def test_the_page_takes_what_records_there_are(tmp_path, monkeypatch):
    """Tables of variants appear with their records, and a marker without one names the command that makes it."""
    monkeypatch.setattr("negwise.experiments.evidence.page.all_tables", lambda *_: {})
    make(tmp_path)
    assert set(tabled(loaded(tmp_path))) == set()
    for name, command in (("long", "--name items-long"), ("seconds", "reproduce seconds"), ("models", "--model naml")):
        with pytest.raises(InputError, match=f"table '{name}', and the records have nothing for it.*{command}"):
            filled(f"<!-- table {name} -->\n\n<!-- end -->", tabled(loaded(tmp_path)))
    make(tmp_path, "items-long", of="items", steps=48)
    make(tmp_path, "items-paper", of="items", variant="paper")
    make(tmp_path, "items-sas", of="items", variant="model", pace=PACE)
    make(tmp_path, "items-ten", of="items", seeds=4)
    make(tmp_path, "matching-cnn", of="matching", variant="model", model="siamese-cnn", arms=TURNS)
    (tmp_path / "pace.json").write_text("{}")  # of the folder that a record was made in
    found = loaded(tmp_path)
    assert list(found.tasks) == ["items"]
    assert set(tabled(found)) == {"long", "paper", "models", "turning", "seconds", "contrasts"}
    monkeypatch.setattr("negwise.experiments.evidence.page.figures", _NoFigures)
    assert [figure.name for figure in drawn(found) if figure] == ["turning", "items-sas-seconds"]


class _NoFigures:
    """The tasks' own figures, which need more than these records have."""

    three_panels = schedules = scores = recommended = staticmethod(lambda _: None)


def test_old_records_need_no_new_field(tmp_path):
    make(tmp_path)
    path = tmp_path / "items.json"
    record = json.loads(path.read_bytes())
    for name in ("of", "variant"):
        del record[name]
    path.write_text(json.dumps(record))
    one = load_analysis(tmp_path, "items")
    assert (one.of, one.variant, one.max_k) == ("items", "", 100.0)
    assert Evidence({"items": one}).turned == [] and Evidence({"items": one}).timed == []


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_of_a_folder(tmp_path):
    package, beside = tmp_path / "src" / "package", tmp_path / ".venv" / "package"
    for folder in (package, beside):
        folder.mkdir(parents=True)
        (folder / "a.py").write_text("1\n")
    assert commit_of(package) is None  # no git
    git(tmp_path, "init", "-q")
    assert commit_of(package) is None  # nothing is committed
    git(tmp_path, "add", "src")
    git(tmp_path, "commit", "-q", "-m", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit_of(package) == head
    (tmp_path / "notes.txt").write_text("elsewhere")
    assert commit_of(package) == head
    (package / "b.py").write_text("2\n")
    assert commit_of(package) == f"{head}+changes"
    assert commit_of(beside) is None  # installed inside somebody's checkout


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) is None


def test_a_record_under_another_name_is_refused(tmp_path):
    make(tmp_path)
    (tmp_path / "items.json").rename(tmp_path / "items-long.json")
    with pytest.raises(InputError, match="expected the record 'items-long', found 'items'"):
        load_analysis(tmp_path, "items-long")
