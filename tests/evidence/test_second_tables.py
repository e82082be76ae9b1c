"""What the second study says of runs whose answer is known; intervals by code of its own."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from evidence_records import rows_of, says
from scipy import stats
from second_made_up import QUERIES, run_of, whole_study

from evidence import second_arms, second_sizes, second_training
from evidence import second_tables as tables
from evidence.second_cells import BLOCKS, DATA, cells_of
from evidence.second_pilots import Pilot
from negwise.metrics import Ranks


def study(block, above, **more):
    return [run_of(cell, above(cell), **more) for cell in cells_of(block)]


def by_k(places):
    """Places by K; the rest at 30."""
    return lambda cell: places.get(cell.k, 30)


def numbers(text):
    return [float(number) for number in re.findall(r"(?<!@)[+-]?\d*\.\d+", text)]


def crossed(x):
    """The interval of paired differences (S, Q), written down anew from the two-way layout."""
    s, q = x.shape
    by_seed, by_query = x.mean(1), x.mean(0)
    ms = q * by_seed.var(ddof=1), s * by_query.var(ddof=1)
    rest = ((x - by_seed[:, None] - by_query + x.mean()) ** 2).sum() / (s - 1) / (q - 1)
    free = s - 1, q - 1
    total, df = max(zip(ms, free, strict=True))
    if sum(ms) - rest > total:
        total = sum(ms) - rest
        df = total**2 / (ms[0] ** 2 / free[0] + ms[1] ** 2 / free[1] + rest**2 / free[0] / free[1])
    reach = stats.t.ppf(0.975, df) * math.sqrt(total / x.size)
    return x.mean(), x.mean() - reach, x.mean() + reach


def aucs(found, task, k):
    """(S, Q): 100 candidates beside the positive, none tied."""
    return np.array([1 - run["ranks"].above / 100 for run in found if (run["task"], run["k"]) == (task, k)])


def places_of(found, task, k):
    return [run["ranks"].above for run in found if (run["task"], run["k"]) == (task, k)]


def test_nothing_was_run_and_every_question_says_so():
    assert set(tables.tables_of([]).values()) == set(tables.sentences([]).values()) == {tables.NOT_RUN}
    asked = [block for one in tables.QUESTIONS.values() for block in one.blocks]
    assert set(asked) == set(BLOCKS)


def test_every_question_is_answered_by_its_own_block_alone():
    """The runs of one block: its sentences change, others say that they are not run."""
    own = {"end-items": {"ends", "lengths"}, "rates": {"rates"}, "rules": {"rules"}, "time": {"time"}}
    for block, questions in own.items():
        told = tables.sentences(study(block, by_k({"1": 60, "1000": 3})))
        answered = {name.removeprefix("second-") for name, text in told.items() if text != tables.NOT_RUN}
        assert answered == questions, block


def test_a_task_whose_runs_are_not_all_there_is_not_used():
    found = study("time", by_k({"1": 60}))
    told = tables.sentences([run for run in found if (run["task"], run["k"], run["seed"]) != ("docs", "4", 14)])
    assert "matching" in told["second-time"] and "docs" not in told["second-time"]
    assert (
        tables.sentences(found[:-1])["second-time"].count("(") == tables.sentences(found)["second-time"].count("(") / 2
    )


def test_more_than_speed_where_k_1_had_stopped():
    found = study("end-items", by_k({"1": 60, "1000": 3}), best=100)
    differences = aucs(found, "items", "1000") - aucs(found, "items", "1")
    row = next(row for row in rows_of(tables.tables_of(found)["second-ends"]) if row[1:3] == ["AUC", "1000"])
    assert says(row[4], *crossed(differences)) and row[5] == "5 of 5"
    told = tables.sentences(found)["second-ends"]
    assert told.startswith("less K = 1, top n: items: yes, K = 1,000 +")
    found = study("end-items", by_k({"1": 60, "1000": 3}), best=6751)  # of 7,500: in the last tenth
    assert "items: K = 1 still rises, K = 1,000 +" in tables.sentences(found)["second-ends"]
    found = study("end-matching", by_k({"1": 3, "1000": 60}), best=100)
    assert "matching: no, the other way, K = 1,000 -" in tables.sentences(found)["second-ends"]


def test_as_good_as_k_1_at_a_third_of_its_steps():
    """K = 1 reaches .5 at its last step, K = 1,000 at step 2,400 of 7,500, each step twice as long."""
    slow, fast = np.linspace(0, 0.5, 26), np.minimum(np.linspace(0, 1.5625, 26), 0.9)
    found = [run_of(cell, 30, val=fast if cell.k == "1000" else slow) for cell in cells_of("end-items")]
    found = [run | {"seconds": run["seconds"] * (2 if run["k"] == "1000" else 1)} for run in found]
    rows = {tuple(row[1:3]): row[6] for row in rows_of(tables.tables_of(found)["second-ends"])}
    assert rows["nDCG@10", "1000"] == "0.32, 0.64" and rows["nDCG@10", "1"] == "1.00, 1.00"


def test_a_study_that_was_cut_off_has_its_whole_seeds():
    found = study("end-items", by_k({"1": 60, "1000": 3}))
    cut = [run for run in found if (run["seed"], run["k"]) < (12, "20")]  # of the third seed two K
    each = second_arms.arms(cut, "auc")
    assert set(each) == {"1", "20", "100", "1000", "all"} and all(len(one.seeds) == 2 for one in each.values())
    one = second_arms.arms([run for run in found if run["seed"] == 10], "auc")
    x = (aucs(found, "items", "1000") - aucs(found, "items", "1"))[0]
    told = (one["1000"] - one["1"]).contrast
    assert (told.low, told.high) == pytest.approx(stats.t.interval(0.95, QUERIES - 1, x.mean(), stats.sem(x)))


def test_in_news_the_interval_is_over_folds():
    found = study("models", by_k({"1": 60}))
    news = [run for run in found if run["task"] == "news"]
    assert DATA["news"]["folds"] == 5
    each = second_arms.arms(news, "auc")
    means = (aucs(news, "news", "100") - aucs(news, "news", "1")).mean(1)
    low, high = (each["100"] - each["1"]).interval
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 2, means.mean(), stats.sem(means)))
    assert second_arms.arms(news[:5], "auc") == {}  # one fold has no interval


def test_what_a_rule_loses():
    """AUC .4, .65 and .9 at K = 1, metric and 1,000: half of the gain."""
    found = study("rules", by_k({"1": 60, "metric": 35, "1000": 10}))
    rows = [row for row in rows_of(tables.tables_of(found)["second-rules"]) if row[:2] == ["items", "AUC"]]
    told = {row[3]: row for row in rows}
    assert told["metric"][2] == "1000"
    assert int(re.match(r"\d+", told["metric"][5])[0]) == pytest.approx(50, abs=2)
    low, high = map(int, re.search(r"\((\d+)% to (\d+)%\)", told["metric"][5]).groups())
    assert low <= 50 <= high and high - low < 10
    # Read off between 300 (at 30, a share of .6) and 1,000: M / n_w = 101 / 4.54 lies between 20 and 100, both at 30.
    assert told["M / n_w"][4] == "22" and told["M / n_w"][5] in ("39%", "40%", "41%")
    found = study("rules", by_k({"1": 60, "metric": 5, "1000": 1}))
    gains = {
        k: np.mean([np.where(above < 10, 1 / np.log2(above + 2), 0).mean() for above in places_of(found, "items", k)])
        for k in ("1", "metric", "1000")
    }
    lost = (gains["1000"] - gains["metric"]) / (gains["1000"] - gains["1"])
    assert tables.sentences(found)["second-rules"].startswith(f"`metric` {100 * lost:.0f}% (")


def test_rates_at_the_edge_and_the_gain_at_each_k_s_own():
    """K = 1 is best at half the rate, K = 1,000 at four times; only there it is ahead."""
    best = {"1": 0.5, "1000": 4.0}
    found = []
    for cell in cells_of("rates"):
        right = cell.scale == best.get(cell.k, 1.0)
        place = {"1": 60, "1000": 3 if right else 90}.get(cell.k, 30)
        found.append(run_of(cell, place, val=[0.9 if right else 0.1] * 26))
    rows = {tuple(row[:3:2]): row for row in rows_of(tables.tables_of(found)["second-rates"])}
    assert rows["items", "1"][3] == "0.5" and rows["items", "1"][6] == "inside"
    assert rows["items", "1000"][3] == "4" and rows["items", "1000"][6] == "edge"
    told = tables.sentences(found)["second-rates"]
    assert told.startswith("at best rates K = 1,000 gains +") and told.endswith("2 of 10 at the edge of the grid")


def test_noise_that_makes_more_negatives_pay_less():
    """Without noise K = 1,000 is .2 ahead of 20 on AUC, with most of it .1 behind: a change of -.3."""
    found = study("noise", lambda cell: 30 if cell.k != "1000" else 10 if cell.noise < 0.4 else 40, separation=2.5)
    mine = {noise: [run for run in found if run["noise"] == noise] for noise in (0.0, 0.4)}
    change = np.subtract(*(aucs(mine[n], "items", "1000") - aucs(mine[n], "items", "20") for n in (0.4, 0.0)))
    told = tables.sentences(found)["second-noise"]
    (in_items,) = re.findall(r"([^;:y]*) in items", told)
    assert numbers(in_items) == pytest.approx(crossed(change), abs=6e-4) and np.mean(change) < -0.25
    rows = {tuple(row[:2]): row for row in rows_of(tables.tables_of(found)["second-noise"])}
    assert rows["items", "0%"][2] == "1000" and rows["items", "40%"][2] != "1000"
    formula = [float(rows["items", share][7]) for share in ("0%", "5%", "20%", "40%")]
    truth = [float(rows["items", share][8]) for share in ("0%", "5%", "20%", "40%")]
    assert formula == sorted(formula, reverse=True) and truth == sorted(truth)
    assert rows["items", "0%"][9] == "50"  # where online K ends


def share_of(k, ratio, power):
    """Of the gain: it saturates, and is 90% at 1 + (M / n)^power."""
    return (k - 1) / (k - 1 + ratio**power / 9)


def power_law(found, power):
    """Ranks by which hit@n has the shares of `share_of`."""
    made = []
    for run in found:
        k, size = run["path"]["k"][-1], int(run["candidates"])
        cuts = [n for n in second_sizes.CUTS if n < size]
        hits = []
        for at, n in enumerate(cuts):  # more hits for a deeper cut-off, whatever K
            hits.append(0.1 * (1 + at) + 0.09 * share_of(k, size / n, power))
        q = np.linspace(0, 1, 4000, endpoint=False)
        above = np.full(4000, size - 1)
        for n, hit in reversed(list(zip(cuts, hits, strict=True))):
            above[q < hit] = n - 1
        ones = np.ones(4000, int)
        made.append(run | {"ranks": Ranks(above, ones, ones, size * ones)})
    return made


def test_sizes_find_the_power_that_was_put_in():
    """Nine data sets of 300 to 50,000 candidates, K for 90% of the gain at (M / n)^.7."""
    sizes = {"items": 3400, "matching": 1900, "docs": 1700, "wide": 19_000, "packages": 4000, "histories": 17_000}
    sizes |= {"simulated-1000": 1000, "simulated-10000": 10_000, "simulated-100000": 50_000}
    found, top = [], 2.0 * 10**3.5
    for block in ("sizes", "rules"):
        for cell in cells_of(block):
            k = top if cell.k == "metric" else None
            found.append(run_of(cell, 0, size=sizes[cell.task], k=k))
    found = power_law(found, 0.7)
    for task, depths in second_sizes.depths(found).items():
        assert len(depths) > 3
        for one in depths:
            assert one.k - 1 == pytest.approx((sizes[task] / one.n) ** 0.7, rel=0.25)  # of 4,000 queries
    told = tables.sentences(found)["second-sizes"]
    for part in told.split("p = ")[1].split(" over n, "):
        mean, low, high = numbers(part)[:3]
        assert mean == pytest.approx(0.7, abs=0.03) and low <= mean <= high
    assert told.endswith("in 9 data sets")
    only_rules = [run for run in found if run["seed"] >= 20]
    assert tables.sentences(only_rules)["second-sizes"] == tables.NOT_RUN


def test_models_are_compared_with_k_star():
    """ANS .1 behind K* on AUC in all seven models, K = 100 level."""
    found = study("models", lambda cell: 40 if cell.k.startswith("ans") else 30)
    told = tables.sentences(found)["second-models"]
    parts = dict(re.findall(r"(K = 100|online K|ANS) ([^;]*)", told))
    assert numbers(parts["ANS"])[0] == pytest.approx(-0.1, abs=0.005)
    gaps = []
    for task in second_arms.tasks_of(found):
        star = next(run["k"] for run in found if run["task"] == task and run["k"].startswith("ans"))
        pair = [aucs(found, task, k) for k in (star, star.removeprefix("ans:"))]
        gaps.append((pair[0] - pair[1]).mean())
    assert len(gaps) == 7
    assert numbers(parts["ANS"])[1:] == pytest.approx(
        stats.t.interval(0.95, 6, np.mean(gaps), stats.sem(gaps)), abs=6e-4
    )


def test_other_negatives_less_the_usual_ones():
    above = {"popularity": 50, "": 30}
    found = study("negatives", lambda cell: 10 if cell.task == "mined" else above[cell.negatives] - 5 * cell.correct)
    rows = {tuple(row[:3]): row[3] for row in rows_of(tables.tables_of(found)["second-negatives"])}
    for name, gap in (("popularity", -0.2), ("popularity, corrected", -0.15), ("ten mined first", 0.2)):
        assert numbers(rows[name, "AUC", "20"])[0] == pytest.approx(gap, abs=1e-3)
    told = tables.sentences(found)["second-negatives"]
    assert re.search(r"popularity [+-].*; popularity, corrected [+-].*; ten mined first \+", told)
    unpaired = [run for run in found if run["task"] != "matching"]
    assert "mined" not in tables.sentences(unpaired)["second-negatives"]


def test_equal_time_has_steps_of_its_own_for_each_k():
    found = study("time", by_k({"1": 5, "4": 50, "100": 3}))
    rows = {tuple(row[:3]): row for row in rows_of(tables.tables_of(found)["second-time"])}
    assert rows["matching", "AUC", "1"][3] == "1740" and rows["matching", "AUC", "100"][3] == "800"
    differences = aucs(found, "matching", "1") - aucs(found, "matching", "100")
    assert says(rows["matching", "AUC", "1"][5], *crossed(differences))
    told = tables.sentences(found)["second-time"]
    assert re.fullmatch(r"K = 1 and 4 less K = 100, top n: -.* and -.* in matching; -.* and -.* in docs", told)


def test_the_length_of_a_pilot():
    """A separation that rises makes K* rise, and intervals of a short part do not hold the last K*."""
    found = study("end-items", by_k({}), separation=2.5)
    rows = {row[1]: row for row in rows_of(tables.tables_of(found)["second-lengths"])}
    ks = [float(rows[part][2]) for part in ("10%", "25%", "50%", "100%")]
    assert ks == sorted(ks) and rows["100%"][4] == "5 of 5" and rows["10%"][4] == "0 of 5"
    told = tables.sentences(found)["second-lengths"]
    assert told.startswith(f"K\\* from a tenth to the end: {ks[0]:,.0f} to {ks[-1]:,.0f} in items; ")


def test_an_interval_holds_the_k_of_the_whole_and_not_the_other_way():
    part, end = Pilot(0.25, 5.0, (1.0, 100.0)), Pilot(1.0, 50.0, (40.0, 60.0))
    assert second_training.holds(part, end) and not second_training.holds(end, part)
    assert not second_training.holds(None, end) and not second_training.holds(Pilot(0.25, 50.0, None), end)


def test_the_whole_study_answers_everything():
    found = whole_study(lambda cell: 30 if cell.k == "1" else 10, spread=True)
    told = tables.sentences(found)
    assert tables.NOT_RUN not in told.values()
    assert all(re.search(r"\d", text) for text in told.values())
    assert all(len(rows_of(text)) > 1 for text in tables.tables_of(found).values())
    # What K = 1,000 changes everywhere alike, and where it does not matter, stays.
    changed = [replace_above(run) if run["k"] == "1000" else run for run in found]
    same = [name for name, text in tables.sentences(changed).items() if text == told[name]]
    assert set(same) <= {"second-lengths", "second-models", "second-negatives", "second-noise", "second-time"}


def replace_above(run):
    return run | {"ranks": replace(run["ranks"], above=run["ranks"].above + 20)}
