"""Ids are read as what they are, or refused: no id becomes another one."""

import csv
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from negwise.datasets import read
from negwise.datasets.id_columns import IdMap, id_texts, keep
from negwise.datasets.row_blocks import Wrong
from negwise.errors import InputError

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
NAMES = st.lists(st.one_of(TEXT, st.sampled_from(["nan", "NaN", "None", "1", "01", "1.0", "1e40", " 1", "1\t", "[1]"])))


def numbers_by_loop(cells):
    """The plain meaning: strip, leave out what is empty, number in the order of first appearance."""
    known, codes, missing = {}, [], []
    for row, cell in enumerate(cells):
        name = cell.strip()
        if not name:
            missing.append(row)
        else:
            codes.append(known.setdefault(name, len(known)))
    return list(known), codes, missing


@settings(max_examples=150, deadline=None)
@given(NAMES, NAMES)
def test_texts_stay_texts(first, second):
    ids, codes, missing = IdMap(), [], []
    for form in (lambda cells: pa.array(cells, pa.string()), lambda cells: pa.array(cells, pa.large_string()), list):
        ids, codes, missing, done = IdMap(), [], [], 0
        for cells in (first, second):  # two blocks of one file
            wrong = Wrong()
            names = id_texts(form(cells), "user", wrong)
            missing += [row + done for row in sorted(wrong)]
            good = [row not in wrong for row in range(len(cells))]
            codes += ids.numbers(
                keep(names, None if not wrong else pa.array(good).to_numpy(zero_copy_only=False))
            ).tolist()
            done += len(cells)
        assert (list(ids.ids), codes, missing) == numbers_by_loop([*first, *second])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_are_written_out(cells):
    for form in (pa.array(cells, pa.int64()), pa.array(cells, pa.int64()).dictionary_encode(), cells):
        names = id_texts(form, "user", Wrong())
        assert [str(cell) for cell in names.to_pylist()] == [str(cell) for cell in cells]


BLANKS = st.text(" \t\u00a0\u3000", max_size=2)
TEXTS = st.tuples(BLANKS, TEXT.filter(str.strip), BLANKS).map("".join)
WHOLE = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 10**18, 10**18 + 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64]),
)
IDS = st.one_of(st.lists(TEXTS, min_size=1), st.lists(WHOLE, min_size=1))


def write_ids(form, cells, folder):
    """``cells`` as users and, from the last to the first, as items."""
    rows = [{"user": user, "item": item} for user, item in zip(cells, cells[::-1], strict=True)]
    path = folder / f"log.{form}"
    if form == "csv":
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([("user", "item"), *(row.values() for row in rows)])
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=len(cells) % 2 > 0) + "\n" for row in rows), "utf-8")
    elif form != "rows":
        kind = next((kind for kind in (pa.int64(), pa.uint64(), pa.string()) if holds(kind, cells)), None)
        values = pa.array([str(cell) for cell in cells] if kind == pa.string() else cells, kind)
        table = pa.table({"user": values, "item": values.take(pa.array(range(len(cells) - 1, -1, -1)))})
        if form == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table)
    return rows if form == "rows" else path


def holds(kind, cells):
    if kind == pa.string():
        return True
    low, high = (-(2**63), 2**63) if kind == pa.int64() else (0, 2**64)
    return all(isinstance(cell, int) and low <= cell < high for cell in cells)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow", "rows"])
@settings(max_examples=5, deadline=None)
@example(cells=[10**18, 10**18 + 1, 2**63 - 1, 2**63, 2**64 - 1])
@example(cells=[2**64, -(2**63) - 1, 7])
@example(cells=[" a", "a\t", "日本", "01", "1", "\u3000é "])
@given(cells=IDS)
def test_what_is_read_is_what_was_written(form, cells):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = read(write_ids(form, cells, folder), cache=folder / "cache")
        found = {
            role: [
                source.tables[f"{role}s"]["id"][at].as_py() for at in source.tables["interactions"][role].to_pylist()
            ]
            for role in ("user", "item")
        }
    written = [str(cell).strip() for cell in cells]
    assert found == {"user": written, "item": written[::-1]}


@pytest.mark.parametrize("second", [pa.int64(), pa.int32(), pa.uint64(), pa.string()])
def test_shards_with_ids_of_several_types_have_one_user_for_each_id(second, tmp_path):
    """A number is the same id as its text, also where ids of one file are numbered as numbers."""
    (tmp_path / "log").mkdir()
    for name, kind in (("0.parquet", pa.int64()), ("1.parquet", second)):
        users = pa.array([3, 1, 3, 2]).cast(kind)
        pq.write_table(pa.table({"user": users, "item": ["x", "y", "z", "x"]}), tmp_path / "log" / name)
    source = read(tmp_path / "log", cache=tmp_path / "cache")
    assert source.tables["users"]["id"].to_pylist() == ["3", "1", "2"]
    assert source.tables["interactions"]["user"].to_pylist() == [0, 1, 0, 2] * 2
    pq.write_table(pa.table({"user": ["01", "1", "a"], "item": ["x", "x", "x"]}), tmp_path / "log" / "2.parquet")
    source = read(tmp_path / "log", cache=tmp_path / "cache")
    assert source.tables["users"]["id"].to_pylist() == ["3", "1", "2", "01", "a"]


REFUSED = [1e40, 1.5, 2.0**53, float("inf"), [1, 2], {"a": 1}, True, b"\xff"]


@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_what_is_no_id_is_refused_with_its_row(value, tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"user": ["a", "b"], "item": pa.array([value, value])}), path)
    with pytest.raises(InputError, match=r"log.parquet, row 1: item .*expected text or a whole number"):
        read(path, cache=tmp_path / "cache")
    wrong = Wrong()
    id_texts(["a", value], "item", wrong)
    assert list(wrong) == [1]


@pytest.mark.parametrize("form", ["parquet", "arrow", "frame"])
def test_categories_are_numbered_by_first_appearance_and_only_those_that_occur(form, tmp_path):
    """A categorical column has its categories in an order of its own, some without a row."""
    codes = pa.array([3, 1, 3, 2], pa.int32())
    users = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b ", "c", "d", "e"]))
    table = pa.table({"user": users, "item": pa.array(["y", "x", "x", "z"])})
    data = tmp_path / "log"
    if form == "parquet":
        pq.write_table(table, data)
    elif form == "arrow":
        with pa.ipc.new_file(str(data), table.schema) as writer:
            writer.write_table(table)
    else:
        data = table
    source = read(data, cache=tmp_path / "cache")
    assert source.tables["users"]["id"].to_pylist() == ["d", "b", "c"]
    assert source.tables["interactions"]["user"].to_pylist() == [0, 1, 0, 2]
    names = id_texts(users, "user", Wrong())
    assert names.dictionary.to_pylist() == ["d", "b", "c"]


def test_a_column_of_numbers_with_gaps(tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"user": pa.array([1.0, None, float("nan"), 2.0]), "item": [1, 2, 3, 4]}), path)
    source = read(path, skip_bad=2, cache=tmp_path / "cache")
    assert source.tables["users"]["id"].to_pylist() == ["1", "2"]
    assert [(problem.where, problem.what) for problem in source.problems] == [
        ("row 2", "no user"),
        ("row 3", "no user"),
    ]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_nul_is_refused_and_names_of_nothing_are_told_of(form, tmp_path):
    rows = [("nan", "x"), ("a", "y"), ("a\0b", "z"), ("nan", "y")]
    path = tmp_path / f"log.{form}"
    if form == "csv":
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([("user", "item"), *rows])
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"user": user, "item": item}) + "\n" for user, item in rows))
    else:
        pq.write_table(pa.table({"user": [row[0] for row in rows], "item": [row[1] for row in rows]}), path)
    where = {"csv": "line 4", "jsonl": "line 3", "parquet": "row 3"}[form]
    with pytest.raises(InputError, match=rf"{where}: user 'a\\x00b' has a NUL character"):
        read(path, cache=tmp_path / "cache")
    source = read(path, skip_bad=1, cache=tmp_path / "cache")
    assert source.tables["users"]["id"].to_pylist() == ["nan", "a"]
    remark = next(remark for remark in source.remarks if remark.about == "user 'nan'")
    assert "in 2 rows" in remark.what


def test_large_ids_stay_apart(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "user,item\n1000000000000000000,1\n1000000000000000001,1e40\n01,10000000000000000303786028427003666890752\n1,2\n"
    )
    source = read(path, cache=tmp_path / "cache")
    assert source.tables["users"]["id"].to_pylist() == ["1000000000000000000", "1000000000000000001", "01", "1"]
    assert source.tables["items"]["id"].to_pylist()[1:3] == ["1e40", "10000000000000000303786028427003666890752"]
