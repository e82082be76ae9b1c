"""Data in memory: every kind of frame is read as the same file would be; no package is loaded that was not passed."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import negwise as nw
from negwise.datasets import read
from negwise.errors import InputError

ROWS = [{"user": f"u{n % 5}", "item": n * 7 % 13, "time": f"2020-01-{n % 28 + 1:02d}"} for n in range(40)]


class Capsule:
    """Any object with Arrow's protocol and no other method, as a frame of a package that we have never heard of."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def pandas_frame():
    frame = pytest.importorskip("pandas").DataFrame(ROWS)
    return frame.set_index(np.arange(40) * 3)  # an index of its own, which is no column


def polars_frame():
    return pytest.importorskip("polars").DataFrame(ROWS)


def package_datasets():
    datasets = pytest.importorskip("datasets")
    if not hasattr(datasets, "Dataset"):
        pytest.skip("not installed; what was found is the folder of these tests")
    return datasets


def hugging_face():
    doubled = package_datasets().Dataset.from_list([*ROWS, *ROWS])
    return doubled.select(range(40))  # rows by an index, not those of the table behind it


FRAMES = {
    "list": lambda: ROWS,
    "columns": lambda: {name: [row[name] for row in ROWS] for name in ROWS[0]},
    "arrow": lambda: pa.Table.from_pylist(ROWS),
    "batch": lambda: pa.RecordBatch.from_pylist(ROWS),
    "capsule": lambda: Capsule(pa.Table.from_pylist(ROWS)),
    "pandas": pandas_frame,
    "polars": polars_frame,
    "datasets": hugging_face,
    "datasets of splits": lambda: package_datasets().DatasetDict({"train": hugging_face()}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_read_as_its_file_is(name, tmp_path):
    data = FRAMES[name]()
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    source, file = read(data, cache=tmp_path / "cache"), read(path, cache=tmp_path / "cache")
    assert source.kind == "interactions" and set(source.tables) == set(file.tables)
    for table in file.tables:
        assert source.tables[table].equals(file.tables[table]), table
    assert read(data, cache=tmp_path / "cache").digest == source.digest


@pytest.mark.parametrize("how", ["select", "shuffle", "filter"])
def test_a_dataset_is_read_in_the_order_of_its_rows(how, tmp_path):
    """By its index of rows, and not as the table behind it lies: rows that were left out or moved stay so."""
    whole = package_datasets().Dataset.from_list([{**row, "user": f"u{n}"} for n, row in enumerate(ROWS)])
    order = [7, 3, 31, 30, 2, 3]
    data = {
        "select": lambda: whole.select(order),
        "shuffle": lambda: whole.shuffle(seed=4),
        "filter": lambda: whole.filter(lambda row: row["item"] % 2 == 0),
    }[how]()
    rows = [dict(row) for row in data]  # as the package itself goes through them
    assert data._indices is not None and rows != [dict(row) for row in whole][: len(rows)]
    if how == "select":
        assert [row["user"] for row in rows] == [f"u{n}" for n in order]
    source = read(data, cache=tmp_path / "cache")
    users, items = (source.tables[name]["id"].to_pylist() for name in ("users", "items"))
    table = source.tables["interactions"]
    found = list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))
    assert [(users[user], items[item]) for user, item in found] == [(row["user"], str(row["item"])) for row in rows]


def test_verbs_take_frames(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    rows = [{"query": f"what is number {n}", "positive": f"it is the answer {n * n}"} for n in range(300)]
    report = nw.data(rows)
    assert report.counts["pairs"] == 300 and report.columns == {"left": "query", "right": "positive"}
    tiny = {"model": "siamese-cnn", "steps": 3, "batch_size": 16, "queries": 40, "k": 2}
    first = nw.train(pa.Table.from_pylist(rows), out=tmp_path / "run", **tiny)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    second = nw.train(path, out=tmp_path / "other", **tiny)
    assert first.record.evaluations == second.record.evaluations
    assert nw.train(rows, out=tmp_path / "run", **tiny).to_dict() == first.to_dict()  # the same content resumes


def test_rows_may_lack_keys_that_others_have(tmp_path):
    rows = [{"left": "a title", "right": "a body"}, {"left": "b title", "right": "b body", "negatives": ["no", "not"]}]
    source = read(rows, cache=tmp_path / "cache")
    texts = source.tables["texts"]["text"].to_pylist()
    assert [[texts[at] for at in row] for row in source.tables["pairs"]["negatives"].to_pylist()] == [[], ["no", "not"]]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (3, "got 3 of type int, expected a path, a pandas"),
        ([], "expected a path"),
        ([1, 2], "expected a path"),
        (
            [{"user": 1, "item": 2}, {"user": "a", "item": 2}],
            "column 'user' has no one type .*make all of them texts",
        ),
        ({"user": ["b", 1], "item": [1, 2]}, "the column 'user' has no one type"),
        ([{"user": "\ud800", "item": 2}], "the column 'user' has no one type"),
        ([{"colour": "red"}], "neither interactions"),
        ([{"user": "a", "item": None}], "^the data, row 1: no item"),
        ({"user": 1}, r"a dictionary in which 'user' is 1, one value; expected a column .*Pass a list of such"),
        ({"user": "abc", "item": "xyz"}, "'user' is 'abc', one value"),
        ({"user": [1, 2], "item": [1]}, r"columns of different lengths, \{'user': 2, 'item': 1\}"),
        ([{1: "a", "1": "b", "item": 2}], "3 columns, of which '1' more than once; .*Rename or drop"),
        (pa.array([1, 2]), "got a single column .*Pass the frame that it is of"),
        (pa.table({"user": ["a"], "thing": [1]}), "^the data: columns 'user, thing' are neither"),
    ],
)
def test_what_is_no_data_is_said(data, words, tmp_path):
    with pytest.raises(InputError, match=words):
        read(data, cache=tmp_path / "cache")


@pytest.mark.parametrize("name", ["Series", "twice", "polars Series", "LazyFrame"])
def test_what_is_no_frame_is_said(name, tmp_path):
    package = pytest.importorskip("pandas" if name in ("Series", "twice") else "polars")
    frame = package.DataFrame(ROWS)
    if name == "twice":
        frame = frame.set_axis(["user", "item", "user"], axis=1)
    data = frame.lazy() if name == "LazyFrame" else frame if name == "twice" else frame["user"]
    said = {"twice": "3 columns, of which 'user' more than once", "LazyFrame": r"Pass frame.collect\(\)"}
    with pytest.raises(InputError, match=said.get(name, r"a single column \(Series\), .*Pass the frame")):
        read(data, cache=tmp_path / "cache")


@pytest.mark.parametrize("form", ["frame", "ipc", "two chunks"])
@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_categories_of_polars(form, kind, tmp_path):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(ROWS)
    names = sorted({row["user"] for row in ROWS}, reverse=True)
    data = frame.with_columns(frame["user"].cast(polars.Enum(names) if kind == "Enum" else polars.Categorical))
    if form == "ipc":
        data.write_ipc(tmp_path / "log.arrow")
        data = tmp_path / "log.arrow"
    elif form == "two chunks":
        data = polars.concat([data[:11], data[11:]], rechunk=False)
    source = read(data, cache=tmp_path / "cache")
    plain = read(ROWS, cache=tmp_path / "cache")
    for table in ("users", "items", "interactions"):
        assert source.tables[table].equals(plain.tables[table])


LARGE = [2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -(2**63) - 1, 7]


@pytest.mark.parametrize("form", ["rows", "columns", "pandas"])
def test_whole_numbers_over_64_bits_are_ids(form, tmp_path):
    rows = [{"user": number, "item": n} for n, number in enumerate(LARGE)]
    data = {"user": LARGE, "item": list(range(7))} if form == "columns" else rows
    if form == "pandas":
        data = pytest.importorskip("pandas").DataFrame(rows)
    source = read(data, cache=tmp_path / "cache")
    assert source.tables["users"]["id"].to_pylist() == [str(number) for number in LARGE]


def test_messages_do_not_name_the_file_of_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    rows = [*ROWS, {"user": "", "item": 1, "time": "2020-01-01"}]
    for data in (rows, pa.Table.from_pylist(rows)):
        report = nw.data(data, skip_bad=1)
        assert report.problems[0].file == "the data" and report.headline().startswith("the data holds interactions")
        with pytest.raises(InputError, match=r"^the data, row 41: no user"):
            nw.data(data)
        with pytest.raises(InputError, match=r"^the data: no column 'x' for the role user"):
            nw.data(data, columns={"user": "x"})
    path = tmp_path / "log.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert nw.data(path, skip_bad=1).problems[0].file == str(path)  # of the same content


def test_no_package_is_loaded_but_the_one_that_was_passed(tmp_path):
    code = (
        "import sys; import negwise as nw; nw.data([{'user': 'a', 'item': 1}, {'user': 'b', 'item': 2}]); "
        "print([name for name in ('polars', 'datasets', 'torch') if name in sys.modules])"
    )  # pyarrow itself looks for pandas
    environment = {"NEGWISE_CACHE": str(tmp_path), "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout.strip() == "[]"
