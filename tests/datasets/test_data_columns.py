"""What was done with each column: roles, ratings, words and negatives, as `negwise data` says it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import ratings

from negwise.datasets import inspect, prepare, read
from negwise.datasets.positives import Condition, parse_condition
from negwise.errors import InputError


def csv_of(path, names, rows):
    path.write_text(",".join(names) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def test_roles_and_what_is_ignored(tmp_path):
    path = csv_of(tmp_path / "log.csv", ["uid", "product", "bought_date", "rating", "colour"],
                  [(n % 4, n % 9, f"2020-01-{n % 28 + 1:02d}", n % 10 + 1, "red") for n in range(50)])  # fmt: skip
    report = inspect(path, cache=tmp_path / "cache")
    assert report.columns == {"user": "uid", "item": "product"}
    said = {remark.about: remark.what for remark in report.remarks}
    assert set(said) == {"column bought_date", "column rating", "column colour"}
    assert "--column time=bought_date" in said["column bought_date"]
    assert "ratings from 1 to 10" in said["column rating"] and '--positive "rating>=6"' in said["column rating"]
    assert said["column colour"].startswith("ignored")
    text = report.explain()
    assert "columns: user = uid, item = product" in text and "column colour: ignored" in text
    assert json.loads(json.dumps(report.to_dict()))["remarks"][0]["about"] == "column rating"
    timed = inspect(path, columns={"time": "bought_date"}, cache=tmp_path / "cache")
    assert timed.columns["time"] == "bought_date" and "time" in timed.splits


@pytest.mark.parametrize("form", ["dat", "csv", "own"])
def test_positive_ratings_against_a_loop(form, tmp_path):
    rows = ratings(n_users=12)
    path = tmp_path / "data.txt"
    if form == "dat":
        path.write_text("".join("::".join(map(str, row)) + "\n" for row in rows))
    else:
        names = ["userId", "movieId", "rating", "timestamp"] if form == "csv" else ["user", "item", "stars", "time"]
        csv_of(path, names, rows)
    column = "stars" if form == "own" else "rating"
    plain = read(path, cache=tmp_path / "cache")
    source = read(path, positive=f"{column} >= 4", cache=tmp_path / "cache")
    assert source.tables["interactions"]["label"].to_pylist() == [int(row[2] >= 4) for row in rows]
    assert source.digest != plain.digest and plain.tables["interactions"]["label"].to_pylist() == [1] * len(rows)
    task = prepare(source)
    users, items = (source.tables[name]["id"].to_pylist() for name in ("users", "items"))
    for number, user in enumerate(users):
        low = {str(item) for who, item, rating, _ in rows if str(who) == user and rating < 4}
        high = {str(item) for who, item, rating, _ in rows if str(who) == user and rating >= 4}
        assert {items[at] for at in task.eval_exclusions[number]} == high
        assert {items[at] for at in task.negatives[number]} == low
    assert any(f"{column}>=4" in remark.what for remark in source.remarks)
    low = sum(rating < 4 for _, _, rating, _ in rows)
    report = inspect(path, positive=f"{column}>=4", cache=tmp_path / "cache")
    assert f"{low} rows have the label 0: negatives that come with the data" in report.negatives.source
    assert set(report.columns) == {"user", "item", "time"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rating>=4", Condition("rating", ">=", 4.0)),
        (" my rating < -1.5 ", Condition("my rating", "<", -1.5)),
        ("event=buy", Condition("event", "=", "buy")),
        ("event != view", Condition("event", "!=", "view")),
        ("stars==5", Condition("stars", "==", 5.0)),
    ],
)
def test_conditions(text, expected):
    assert parse_condition(text) == expected


@pytest.mark.parametrize("text", ["rating", ">=4", "rating>=", "rating>=many", "rating>=nan", ""])
def test_what_is_no_condition(text):
    with pytest.raises(InputError, match="positive: got"):
        parse_condition(text)


TRUTHS = [True, False, True, True]


@pytest.mark.parametrize("cells", [TRUTHS, ["True", "FALSE", "true", "TRUE"], ["true", "false", "true", "true"]])
@pytest.mark.parametrize(("typed", "expected"), [("=true", TRUTHS), ("=False", [not one for one in TRUTHS]),
                                                 ("!=TRUE", [not one for one in TRUTHS])])  # fmt: skip
@pytest.mark.parametrize("form", ["parquet", "csv", "rows"])
def test_truth_values_in_a_condition(cells, typed, expected, form, tmp_path):
    rows = [{"user": f"u{n}", "item": n, "bought": cell} for n, cell in enumerate(cells)]
    data = rows
    if form == "csv":
        data = csv_of(tmp_path / "log.csv", list(rows[0]), [tuple(row.values()) for row in rows])
    elif form == "parquet":
        data = tmp_path / "log.parquet"
        pq.write_table(pa.Table.from_pylist(rows), data)
    source = read(data, positive=f"bought{typed}", cache=tmp_path / "cache")
    assert source.tables["interactions"]["label"].to_pylist() == [int(one) for one in expected]


def test_true_and_1_are_two_things_unless_the_column_has_truth_values(tmp_path):
    rows = [{"user": f"u{n}", "item": n, "bought": n % 2} for n in range(6)]
    with pytest.raises(InputError, match=r"none of 6 rows has that. bought has '0', '1'. .* as 'bought=0'"):
        read(rows, positive="bought=true", cache=tmp_path / "cache")
    truths = [{**row, "bought": bool(row["bought"])} for row in rows]
    for data in (rows, truths):
        source = read(data, positive="bought=1", cache=tmp_path / "cache")
        assert source.tables["interactions"]["label"].to_pylist() == [0, 1, 0, 1, 0, 1]


def test_a_condition_that_says_nothing_is_told(tmp_path):
    rows = [(f"u{n}", n, n % 3 + 1) for n in range(9)]
    path = csv_of(tmp_path / "log.csv", ["user", "item", "rating"], rows)
    with pytest.raises(InputError, match=r"log.csv: positive=rating>=4, and none of 9 rows has that. rating has '1'"):
        read(path, positive="rating>=4", cache=tmp_path / "cache")
    source = read(path, positive="rating>=1", cache=tmp_path / "cache")
    assert any("every row has rating>=1: all are positives, as without it" in one.what for one in source.remarks)
    some = read(path, positive="rating>=2", cache=tmp_path / "cache")
    assert any("6 of 9 rows have rating>=2 and are positives" in remark.what for remark in some.remarks)


def test_a_second_user_column_is_told_how_to_be_taken(tmp_path):
    path = csv_of(tmp_path / "log.csv", ["user", "session_id", "item"], [("a", 1, 2), ("b", 3, 4)])
    said = {remark.about: remark.what for remark in read(path, cache=tmp_path / "cache").remarks}
    assert said["column session_id"] == (
        "ignored: the user is in the column user. To take this column, type --column user=session_id"
    )
    assert read(path, columns={"user": "session_id"}, cache=tmp_path / "cache").columns["user"] == "session_id"


def test_conditions_that_do_not_fit_the_data(tmp_path):
    path = csv_of(
        tmp_path / "log.csv", ["user", "item", "rating", "event"], [("a", 1, 5, "buy"), ("b", 2, "x", "view")]
    )
    with pytest.raises(InputError, match=r"no column 'stars'. Columns: user, item, rating, event"):
        read(path, positive="stars>3", cache=tmp_path / "cache")
    with pytest.raises(InputError, match=r"line 3: rating 'x', expected a number for rating>3"):
        read(path, positive="rating>3", cache=tmp_path / "cache")
    source = read(path, positive="event=buy", cache=tmp_path / "cache")
    assert source.tables["interactions"]["label"].to_pylist() == [1, 0]


@pytest.mark.parametrize("names", [["session_id", "item"], ["user_id", "item", "session_id"], ["item", "SessionId"]])
def test_a_session_is_a_user_where_there_is_none(names, tmp_path):
    path = csv_of(tmp_path / "log.csv", names, [tuple(f"{name}{n}" for name in names) for n in range(5)])
    expected = "user_id" if "user_id" in names else next(name for name in names if "ession" in name)
    assert read(path, cache=tmp_path / "cache").columns["user"] == expected


def test_a_text_without_word_breaks_is_cut_into_characters(tmp_path):
    rows = [
        {"left": f"第{n}个问题是什么", "right": "负样本的数量取决于标签的质量和模型。" + "很" * n} for n in range(1, 30)
    ]
    rows += [{"left": "an English title", "right": "with the one word 你好 in it"}]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    report = inspect(path, cache=tmp_path / "cache")
    source = read(path, cache=tmp_path / "cache")
    words = source.tables["words"]["id"].to_pylist()
    first = [words[at] for at in source.tables["pairs"]["left_words"][0].as_py()]
    assert first == list("第1个问题是什么") and "你好" in words
    lengths = [len(row["right"]) - 1 for row in rows[:-1]] + [7]  # a full stop is no word
    assert report.counts["body_length"] == sum(lengths) / len(lengths)
    characters = {letter for row in rows[:-1] for letter in row["left"] + row["right"] if letter.isalpha()}
    assert any(f"cut into characters ({len(characters)} different ones)" in remark.what for remark in report.remarks)


def test_given_negatives_are_told_of(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("query,answer,neg_1,neg_2,id\n" + "".join(f"q {n},a {n},x {n},y {n},{n}\n" for n in range(9)))
    report = inspect(path, cache=tmp_path / "cache")
    assert report.columns == {"left": "query", "right": "answer", "negative 1": "neg_1", "negative 2": "neg_2"}
    assert report.counts["given_negatives"] == 18 and "bring negatives of their own" in report.negatives.source


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("split", ["last", "user"])
def test_splitting_sequences_says_how_far_it_is(timed, split, tmp_path, monkeypatch):
    from negwise.datasets import sequences

    rows = ratings(n_users=60, n_items=90, most=40)
    names = ["user", "item", "time"] if timed else ["user", "item"]
    path = csv_of(tmp_path / "log.csv", names, [(user, item, time)[: len(names)] for user, item, _, time in rows])
    source = read(path, cache=tmp_path / "cache")
    whole, shares = prepare(source, split=split), []
    monkeypatch.setattr(sequences, "BLOCK", 100)
    task = prepare(source, split=split, progress=shares.append)
    assert len(shares) > 20 and shares == sorted(shares) and 0 < shares[0] < 0.3 and 0.9 < shares[-1] <= 1
    for lists in ("train_exclusions", "eval_exclusions", "histories"):  # a block at a time or all at once
        found, expected = getattr(task, lists), getattr(whole, lists)
        assert (found.offsets == expected.offsets).all() and (found.ids == expected.ids).all()


def test_reading_says_how_far_it_is(tmp_path):
    from negwise.datasets import line_blocks

    path = csv_of(tmp_path / "log.csv", ["user", "item"], [(n, n) for n in range(2000)])
    shares = []
    line_blocks.BLOCK_BYTES, before = 1000, line_blocks.BLOCK_BYTES
    try:
        read(path, cache=tmp_path / "cache", progress=shares.append)
    finally:
        line_blocks.BLOCK_BYTES = before
    assert len(shares) > 5 and shares == sorted(shares) and shares[-1] == 1.0
