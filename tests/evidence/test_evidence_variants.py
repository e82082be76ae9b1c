"""Variants of the tasks: records made up here go through tables; loops and SciPy say what must be there."""

import json
from dataclasses import replace

import numpy as np
import pytest
from evidence_records import make, rows_of, says, scores_of

from evidence import tables, variants
from evidence.analysis import load_analysis
from evidence.page import loaded
from evidence.rules import depth, lost, nearly_fit
from evidence.turning import points, turning
from negwise.errors import InputError


def halves(measured):
    """Half the width of an interval, from the record's own standings: seeds as rows, queries as columns."""
    return (measured.interval[1] - measured.interval[0]) / 2


def test_models(tmp_path):
    found = {one.name: one for one in (make(tmp_path), make(tmp_path, "items-sas", of="items", variant="model"))}
    chosen = variants.other_models(found)
    assert [one.name for one in chosen] == ["items", "items-sas"]
    rows = rows_of(variants.models(chosen))
    assert len(rows) == 4 and {row[1] for row in rows} == {"BERT4Rec"} and {row[2] for row in rows} == {"3"}
    for row, (one, metric) in zip(rows, [(one, m) for one in chosen for m in ("auc", "ndcg@10")], strict=True):
        for cell, rule, other in zip(row[5:], ("5", "ans:5", "warm:5"), ("1", "5", "5"), strict=True):
            gap = (scores_of(one, rule, metric) - scores_of(one, other, metric)).mean()
            reach = halves(one.difference(rule, other, metric))
            assert says(cell, gap, gap - reach, gap + reach)


def test_an_arm_that_was_not_run_is_said_to_be_missing(tmp_path):
    one = make(tmp_path, "items-sas", of="items", variant="model", arms=("1", "100"), k_star=1)
    (row, _) = rows_of(variants.models([one]))
    assert row[5:] == ["not run"] * 3


def test_the_papers_settings(tmp_path):
    printed = make(tmp_path, "items-paper", of="items", variant="paper", arms=("1", "5", "20", "ans:5", "warm:5"))
    lonely = make(tmp_path, "news-paper", of="news", variant="paper", model="nrms", arms=("1", "4", "5"))
    found = variants.published({one.name: one for one in (make(tmp_path), printed, lonely)})
    assert found == [printed, lonely]
    rows = rows_of(variants.paper(found))
    assert rows[0][6] == "20" and rows[2][6] == "4"
    gap = scores_of(printed, "20") - scores_of(printed, "5")
    assert float(rows[0][7].split()[0]) == pytest.approx(gap.mean(), abs=5.1e-5)
    assert rows[2][8] == "not run"


def test_longer_training_is_told_from_other_variants(tmp_path):
    own = make(tmp_path)
    more = make(tmp_path, "items-long", of="items", steps=96, arms=("1", "7", "100"), k_star=7)
    others = [
        make(tmp_path, "items-short", of="items", steps=12),
        make(tmp_path, "items-elsewhere", of="items", steps=96, data={"name": "y", "digest": "other"}),
        make(tmp_path, "items-paper", of="items", steps=96, variant="paper"),
    ]
    assert variants.longer({one.name: one for one in (own, more, *others)}) == [more]


def test_new_seeds_stand_alone(tmp_path):
    """The first record has seeds 0 to 2, the larger 0 to 5: its seeds 3 to 5 are new."""
    own = make(tmp_path)
    more = make(tmp_path, "items-ten", of="items", seeds=6, data={"name": "renamed", "digest": "same"})
    part = make(tmp_path, "items-turning", of="items", seeds=6, ks=[1, 20])
    found = {one.name: one for one in (own, more, part)}
    assert variants.repeated(found) == [(own, more)] and variants.largest(found) == {"items": more}
    rows = rows_of(tables.fresh_seeds([(own, more)]))
    assert [row[2] for row in rows[:3]] == ["first, 3", "new seeds, 3", "all seeds, 6"]
    gap = (scores_of(more, "5") - scores_of(more, "1"))[3:]
    assert float(rows[1][4].split()[0]) == pytest.approx(gap.mean(), abs=5.1e-5)


TURNS = ("1", "5", "100", "ans:5", "warm:5", "ans:5:0.3", "ans:5:0.01")


def test_turning_points(tmp_path):
    one = make(tmp_path, arms=TURNS)
    assert list(points(one).items()) == [(0.01, "ans:5:0.01"), (0.1, "ans:5"), (0.3, "ans:5:0.3")]
    rows = rows_of(turning([one]))
    for row, rule in zip(rows, points(one).values(), strict=True):
        gap = (scores_of(one, rule) - scores_of(one, "5")).mean()
        assert says(row[2], gap, *one.difference(rule, "5").interval)
        usual = (scores_of(one, rule) - scores_of(one, "ans:5")).mean()
        assert row[4] == "" if rule == "ans:5" else float(row[4].split()[0]) == pytest.approx(usual, abs=5.1e-5)
    assert points(make(tmp_path)) == {}


def world(tmp_path, name="items", half=30, **more):
    """K = 1 has 50 of 100 candidates above the positive, the best K 10, K* so many between."""
    return make(tmp_path, name, places={"1": 50, "5": half, "100": 10, "ans:5": 30, "warm:5": 30}, **more)


@pytest.mark.parametrize(("half", "share"), [(30, 0.5), (10, 1.0), (50, 0.0)])
def test_the_share_of_a_known_gain(tmp_path, half, share):
    one = world(tmp_path, half=half)
    found = one.share(5, "auc")
    assert found.mean == pytest.approx(share, abs=0.01) and found.low <= share <= found.high
    assert one.regret(5).mean == pytest.approx((half - 10) / 100, abs=0.005)
    assert one.share_at(5, "auc") == pytest.approx(found.mean)
    between = (one.share_at(5, "auc") + one.share_at(100, "auc")) / 2  # half-way in log K
    assert one.share_at(np.sqrt(500), "auc") == pytest.approx(between)
    assert lost(one, "always 300", "auc") == (100.0, pytest.approx(1 - one.share_at(100, "auc")))


def test_the_best_k_is_that_of_the_metric(tmp_path):
    """On validation K = 5 has the best AUC and K = 100 the best nDCG@10: each is the best of its own metric."""
    one = world(tmp_path)
    record = json.loads(json.dumps(one.record))
    for arm, auc, top in zip(record["arms"][:3], (0.5, 0.9, 0.8), (0.1, 0.2, 0.3), strict=True):
        for run in arm["seeds"]:
            run["val"] = {"auc": auc, "ndcg@10": top}
    one = replace(one, record=record)
    assert (one.best("auc"), one.best("ndcg@10")) == (5, 100)
    assert one.regret(5, "ndcg@10").mean == one.difference("100", "5", "ndcg@10").mean


def test_hits_at_every_depth(tmp_path):
    """By plain loops: hit@20 of K = 5, its share, and the K with 90% of the gain."""
    one = world(tmp_path)
    found = depth(one, 31)  # K = 5 has about 30 above each positive: some are hits
    hits = {k: np.mean([np.mean([a < 31 for a in one.ranks[str(k), s].above]) for s in range(3)]) for k in one.fixed}
    assert 0 < hits[5] < 1
    gain = max(hits.values()) - hits[1]
    assert found.shares.tolist() == pytest.approx([(hits[k] - hits[1]) / gain for k in one.fixed])
    exact = world(tmp_path, "docs")
    assert depth(exact, 20).best == 100 and 5 < depth(exact, 20).nearly < 100
    assert depth(exact, 20).at(depth(exact, 20).nearly) == pytest.approx(0.9)


def test_the_fit_of_nearly_all_is_a_straight_line_of_logarithms(tmp_path):
    one = world(tmp_path)
    scale, power, _ = nearly_fit([one], (20, 35))
    for n in (20, 35):
        each = depth(one, n)
        assert scale * each.ratio**power == pytest.approx(each.nearly)


def test_seeds_are_pooled_over_records(tmp_path):
    """Two records with three and four seeds: the first three count as the mean of both."""
    one, other = make(tmp_path), make(tmp_path, "items-ten", of="items", seeds=4)
    gaps = [scores_of(each, "100") - scores_of(each, "5") for each in (one, other)]
    expected = np.mean([*(gaps[0] + gaps[1][:3]) / 2, gaps[1][3]])
    assert variants.pooled([one, other], "auc").mean == pytest.approx(expected)


def test_rates_at_the_edge_and_runs_that_end_at_their_best(tmp_path):
    tried = [{"learning_rate": rate, "val_auc": 0.5} for rate in (1, 3, 9)]
    one = make(tmp_path, tuning={"1": {"learning_rate": 9, "tried": tried}, "5": {"learning_rate": 3, "tried": tried}})
    assert tables.chosen_at_edge({"items": one}) == (1, 2)
    for at, run in enumerate(run for arm in one.record["arms"] for run in arm["seeds"]):
        run["best_step"] = 24 if at < 4 else 12
    assert tables.ended_at_best(one) == (4, 15)


def test_the_primary_contrasts(tmp_path):
    one = make(tmp_path)
    rows = rows_of(tables.primary({"items": one}))
    assert [row[1] for row in rows] == ["K\\* = 5 against K = 1", "ANS to 5 against fixed 5"]
    assert says(rows[0][2], (scores_of(one, "5") - scores_of(one, "1")).mean())
    assert rows_of(tables.primary({"items": make(tmp_path, arms=("1", "100"), k_star=1)})) == []


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


def test_papers_settings_may_lack_what_was_not_run(tmp_path):
    make(tmp_path)
    make(tmp_path, "items-paper", of="items", variant="paper", k_star=7, k_best=7)
    found = loaded(tmp_path)
    assert rows_of(variants.paper(variants.published(found.every)))[0][5] == "not run"


def test_a_record_without_its_standings(tmp_path):
    make(tmp_path)
    (tmp_path / "items.safetensors").unlink()
    with pytest.raises(InputError, match=r"items\.safetensors is missing beside it"):
        loaded(tmp_path)


def test_records_of_no_task(tmp_path):
    make(tmp_path, "docs")
    with pytest.raises(InputError, match="expected the record of news, matching, items, found docs"):
        loaded(tmp_path)


def test_old_records_need_no_new_field(tmp_path):
    make(tmp_path)
    path = tmp_path / "items.json"
    record = json.loads(path.read_bytes())
    for name in ("of", "variant"):
        del record[name]
    path.write_text(json.dumps(record))
    one = load_analysis(tmp_path, "items")
    assert (one.of, one.variant, one.max_k) == ("items", "", 100.0)


def test_a_record_under_another_name_is_refused(tmp_path):
    make(tmp_path)
    (tmp_path / "items.json").rename(tmp_path / "items-long.json")
    with pytest.raises(InputError, match="expected the record 'items-long', found 'items'"):
        load_analysis(tmp_path, "items-long")
