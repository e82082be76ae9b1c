"""The report against plain loops over what was written, and over the real data where it is."""

import json
import lzma
import statistics

import numpy as np
import pytest
from data_files import in_order, mind_behaviors, mind_news, ratings, shared, write_mind

from negwise.datasets import bad_rows, inspect, prepare, read
from negwise.errors import InputError
from negwise.words import split_words


def mind_by_loops(news, behaviors):
    """Table 1 and the ceiling for K, from raw lines."""
    clicks = negatives = history = 0
    available, users, pairs = [], set(), set()
    for user, past, shown in behaviors:
        users.add(user)
        history += len(past)
        clicked = [name for name, label in shown if label]
        clicks, negatives = clicks + len(clicked), negatives + len(shown) - len(clicked)
        available += [len(shown) - len(clicked)] * len(clicked)
        pairs |= {(user, name) for name in clicked}
    bodies = [len(split_words(row[4])) for row in news if split_words(row[4])]
    return {
        "news": len(news), "users": len(users), "impressions": len(behaviors), "clicks": clicks,
        "history_length": history / len(behaviors), "title_length": np.mean([len(split_words(row[3])) for row in news]),
        "news_with_a_body": len(bodies), "body_length": np.mean(bodies),
    }, clicks / (clicks + negatives), available, len(pairs) / len(users) / len(news)  # fmt: skip


def check_mind(report, counts, balance, available, density):
    assert {name: pytest.approx(value) for name, value in counts.items()} == report.counts
    assert report.label_balance == pytest.approx(balance) and report.density == pytest.approx(density)
    has = report.negatives
    assert (has.least, has.median, has.most) == (min(available), statistics.median(available), max(available))
    assert has.mean == pytest.approx(statistics.mean(available))


def test_mind(tmp_path):
    news = mind_news(30)
    rows = mind_behaviors(40, news, days=range(9, 12))
    path = write_mind(tmp_path / "MIND", news, rows)
    report = inspect(path, cache=tmp_path / "cache")
    check_mind(report, *mind_by_loops(news, [(user, past, shown) for _, user, _, past, shown in rows]))
    assert report.kind == "mind" and len(report.examples) == 3
    assert report.examples[0]["user"] == rows[0][1]
    assert report.examples[0]["shown"] == next(row[3] for row in news if row[0] == rows[0][4][0][0])


def test_interactions(tmp_path):
    rows = ratings()
    path = tmp_path / "ratings.dat"
    path.write_text("".join("::".join(map(str, row)) + "\n" for row in rows))
    report = inspect(path, cache=tmp_path / "cache")
    sequences = in_order(rows)
    items = {item for _, item, *_ in rows}
    assert report.counts == {
        "items": len(items), "users": len(sequences), "interactions": len(rows),
        "history_length": len(rows) / len(sequences),
    }  # fmt: skip
    assert report.density == len(rows) / len(sequences) / len(items) and report.label_balance is None
    left = [len(items) - len(sequence) for sequence in sequences.values()]
    assert (report.negatives.least, report.negatives.most) == (min(left), max(left))


def test_every_problem_is_reported(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("1 2\nx\n1 3\ny\n" + "z\n" * 12)
    with pytest.raises(InputError, match="line 2"):
        inspect(path, cache=tmp_path / "cache")
    report = inspect(path, skip_bad=20, cache=tmp_path / "cache")
    found = json.loads(json.dumps(report.to_dict()))
    assert [problem["where"] for problem in found["problems"]] == ["line 2", *(f"line {n}" for n in range(4, 17))]
    facts = report.facts()
    assert ("bad rows skipped", "14") in facts and ("problems not shown", "4") in facts
    assert f"problem: {path}, line 2: 'x', expected user item with whole numbers" in report.explain()


def test_one_error_says_how_many_rows_to_allow(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("1 2\nx\n1 3\ny\n" + "z\n" * 12)
    for allowed, line in ((0, 2), (1, 4), (13, 16)):
        with pytest.raises(InputError) as caught:
            inspect(path, skip_bad=allowed, cache=tmp_path / "cache")
        told = str(caught.value)
        assert told.startswith(f"{path}, line {line}: ")
        assert "In all 14 rows are bad, 12 of them: 'z'" in told
        assert "--skip-bad 14 (in Python: skip_bad=14)" in told
    assert len(inspect(path, skip_bad=14, cache=tmp_path / "cache").problems) == 14


@pytest.mark.parametrize("allowed", [0, 1, 9])
def test_a_file_of_which_nothing_is_left(allowed, tmp_path):
    path = tmp_path / "movies.dat"
    path.write_text("1::Toy Story (1995)::Comedy\n2::Jumanji (1995)::Adventure\n")
    with pytest.raises(InputError, match=r"line 1: .*None of 2 rows could be read: is this the right file"):
        inspect(path, skip_bad=allowed, cache=tmp_path / "cache")


def test_a_file_of_another_kind_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(bad_rows, "MAX_EXCESS", 5)
    path = tmp_path / "log.txt"
    path.write_text("1 2\n" + "x\n" * 20)
    with pytest.raises(InputError, match=r"line 4: 'x'.*More than 7 rows are bad"):
        inspect(path, skip_bad=2, cache=tmp_path / "cache")


def can_be_made(path, split, cache):
    try:
        return len(prepare(read(path, cache=cache), split=split).test) > 0
    except InputError:
        return False


@pytest.mark.parametrize("days", [range(9, 12), range(9, 20)])
@pytest.mark.parametrize("users", [2, 12])
def test_the_splits_that_are_offered_are_those_that_can_be_made(days, users, tmp_path):
    news = mind_news(30)
    flat = write_mind(tmp_path / "flat", news, mind_behaviors(60, news, days, users=users))
    for name in ("train", "dev"):
        write_mind(tmp_path / "parts" / name, news, mind_behaviors(60, news, days, users=users))
    write_mind(tmp_path / "parts" / "test", news, mind_behaviors(9, news, [21], labelled=False))
    rows = [(user, row, 978300000 + 86400 * (day - 9)) for user in range(users) for row, day in enumerate(days)]
    own = tmp_path / "own.csv"
    own.write_text("user,item,time\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    for path, choices in ((flat, ("time", "user", "folders")), (tmp_path / "parts", ("time", "user", "folders")),
                          (own, ("last", "user", "time"))):  # fmt: skip
        made = tuple(name for name in choices if can_be_made(path, name, tmp_path / "cache"))
        assert inspect(path, cache=tmp_path / "cache").splits == made


def test_clicks_say_the_truth():
    report = inspect("clicks")
    assert report.truth["AUC"] > 0.9 and ("true AUC", f"{report.truth['AUC']:.4f}") in report.facts()
    assert json.loads(json.dumps(report.to_dict()))["truth"] == report.truth


def test_no_such_thing(tmp_path):
    with pytest.raises(InputError, match="Embedded data: docs, clicks"):
        inspect(tmp_path / "nothing")


def test_real_mind(tmp_path):
    folder = shared("mind")
    news = [line.split("\t") for line in (folder / "news.tsv").read_text(encoding="utf-8").splitlines()]
    rows = []
    for line in (folder / "behaviors.tsv").read_text().splitlines():
        _, user, _, past, shown = line.split("\t")
        rows.append((user, past.split(), [(entry[:-2], int(entry[-1])) for entry in shown.split()]))
    report = inspect(folder, cache=tmp_path)
    check_mind(report, *mind_by_loops(news, rows))
    assert (report.counts["news"], report.counts["impressions"], report.counts["clicks"]) == (51282, 5000, 7542)
    with pytest.raises(InputError, match=r"6 days, 2019-11-09 to 2019-11-14"):
        prepare(read(folder, cache=tmp_path), split="time")
    task = prepare(read(folder, cache=tmp_path))
    assert any("split by user: 6 days" in note for note in task.notes)
    assert len(task.train) + len(task.val) + len(task.test) == 7542


@pytest.mark.slow
def test_real_ml_1m(tmp_path):
    file = shared("ml-1m/ml-1m_sas.txt.xz")
    sequences = {}
    with lzma.open(file, "rt") as stream:
        for line in stream:
            user, item = map(int, line.split())
            sequences.setdefault(user, []).append(item)
    report = inspect(file, cache=tmp_path)
    assert report.counts["interactions"] == 999_611 and report.counts["items"] == 3416
    source = read(file, cache=tmp_path)
    task = prepare(source)
    users, items = (np.array(source.tables[name]["id"].to_pylist(), int) for name in ("users", "items"))
    assert (items[task.test.positives] == [sequences[user][-1] for user in users[task.test.users]]).all()
    assert (items[task.val.positives] == [sequences[user][-2] for user in users[task.val.users]]).all()
    assert len(task.train) == sum(len(sequence) - 3 for sequence in sequences.values())


@pytest.mark.slow
def test_real_reuters(tmp_path):
    report = inspect(shared("reuters"), skip_bad=2535, cache=tmp_path)
    assert report.counts["pairs"] == 19_043 and len(report.problems) == 2535
    for allowed in (0, 10, 2534):
        with pytest.raises(InputError, match=r"In all 2,535 rows are bad, 1,798 of them: body is ''.*--skip-bad 2535 "):
            inspect(shared("reuters"), skip_bad=allowed, cache=tmp_path / f"unread-{allowed}")
