"""Records and frames in memory give the curves that were put into them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from negwise.curves import read
from negwise.errors import InputError

STEPS, TRAIN, VAL = [0, 10, 20], [0.5, 0.7, 0.8], [0.5, 0.6, 0.65]
COLUMNS = {"step": STEPS, "train_auc": TRAIN, "val_auc": VAL, "val_queries": [300, 300, 300]}
RECORDS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]


def assert_curves(curves, source: str = "the records") -> None:
    assert (curves.kind, curves.source) == ("records", source)
    for name, expected in (("val_steps", STEPS), ("train_steps", STEPS), ("train_auc", TRAIN), ("val_auc", VAL)):
        np.testing.assert_array_equal(getattr(curves, name), expected)
    np.testing.assert_array_equal(curves.val_queries, [300] * 3)


@pytest.mark.parametrize(
    "data",
    [
        RECORDS,
        tuple(RECORDS),
        COLUMNS,
        {name: np.array(column) for name, column in COLUMNS.items()},
        {name: np.array(column, "float32" if name == "step" else float) for name, column in COLUMNS.items()},
        [{name: np.asarray(cell)[()] for name, cell in record.items()} for record in RECORDS],
        [{name: np.array(cell) for name, cell in record.items()} for record in RECORDS],  # no dimensions
    ],
    ids=["list", "tuple", "columns", "arrays", "float32", "numpy numbers", "arrays of one"],
)
def test_plain_records(data: object) -> None:
    assert_curves(read(data))


def test_torch_numbers() -> None:
    torch = pytest.importorskip("torch")
    data = [{name: torch.tensor(cell, dtype=torch.float64) for name, cell in record.items()} for record in RECORDS]
    assert_curves(read(data))


def test_arrow_tables() -> None:
    arrow = pytest.importorskip("pyarrow", exc_type=ImportError)  # theirs may need a newer NumPy
    table = arrow.table(COLUMNS)
    assert_curves(read(table))
    assert_curves(read(table.to_batches()[0]))
    sparse = arrow.table({"step": [1, 2, 3], "val_auc": [0.5, None, 0.625]})
    np.testing.assert_array_equal(read(sparse).val_steps, [1, 3])
    twice = arrow.Table.from_arrays([arrow.array([1]), arrow.array([2])], ["val_auc", "val_auc"])
    with pytest.raises(InputError, match="two columns with one name"):
        read(twice)


def test_pandas_frames() -> None:
    pandas = pytest.importorskip("pandas", exc_type=ImportError)  # theirs may need a newer NumPy
    frame = pandas.DataFrame(COLUMNS)
    assert_curves(read(frame))
    assert_curves(read(frame.set_index("step")))  # an index with a name is a column
    assert_curves(read(frame.convert_dtypes()))
    sparse = pandas.DataFrame([{"step": 1, "val_auc": 0.5}, {"step": 2, "loss": 3}, {"step": 3, "val_auc": 0.625}])
    np.testing.assert_array_equal(read(sparse).val_steps, [1, 3])  # NaN is an empty cell there
    with pytest.raises(InputError, match="two columns with one name"):
        read(pandas.DataFrame([[1, 0.5]], columns=["val_auc", "val_auc"]))


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars", exc_type=ImportError)  # theirs may need a newer NumPy
    assert_curves(read(polars.DataFrame(COLUMNS)))
    sparse = polars.DataFrame({"step": [1, 2, 3], "val_auc": [0.5, None, 0.625]})
    np.testing.assert_array_equal(read(sparse).val_steps, [1, 3])


def test_the_history_of_a_trainer() -> None:
    """``trainer.state.log_history`` is a list of dictionaries, and is read like its file."""
    file = Path(__file__).parent / "logs" / "trainer_state.json"
    curves = read(json.loads(file.read_text())["log_history"])
    np.testing.assert_array_equal(curves.val_auc, read(file).val_auc)
    np.testing.assert_array_equal(curves.train_steps, read(file).train_steps)


def test_records_of_a_run_log() -> None:
    records = [
        {"kind": "step", "step": 1, "k": 4.0},
        {"kind": "eval", "step": 1, "split": "val", "auc": 0.5},
        {"kind": "eval", "step": 2, "split": "val", "auc": 0.75},
        {"kind": "event", "event": "resume", "step": 1},
    ]
    curves = read(records)
    assert curves.kind == "run" and curves.trained_k == (4, 4)
    np.testing.assert_array_equal(curves.val_auc, [0.5])


def test_named_columns() -> None:
    curves = read(
        {"tick": STEPS, "fit": TRAIN, "held": VAL}, columns={"step": "tick", "train_auc": "fit", "val_auc": "held"}
    )
    np.testing.assert_array_equal(curves.val_steps, STEPS)


def test_an_estimate_in_one_line() -> None:
    import negwise as nw

    found = nw.curves.read([{**record, "k": 8.5} for record in RECORDS]).estimate(lam=0.95)
    plain = nw.optimal_k(TRAIN, VAL, steps=STEPS, train_steps=STEPS, n_queries=[300] * 3, lam=0.95)
    assert (found.k, found.interval, found.lam) == (plain.k, plain.interval, 0.95)
    assert found.reasons[1:] == plain.reasons
    assert found.reasons[0].startswith("This run was trained with K = 8.5")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, r"read: got 3 of type int, expected a path, a list of dictionaries"),
        (np.ones((2, 2)), r"read: got array\(\[\[1\., 1\.\], \[1\., 1\.\]\]\) of type ndarray, expected a path"),
        (None, r"read: got None of type NoneType"),
        (b"log.csv", r"read: got b'log.csv' of type bytes"),
        ([0.5, 0.6], r"the records, \[0\]: expected a dictionary, not 0.5"),
        ([{"val_auc": 0.5}, [1]], r"the records, \[1\]: expected a dictionary, not \[1\]"),
        ([], r"the records: nothing logged yet"),
        ({}, r"the records: nothing logged yet"),
        ({"step": [1, 2], "val_auc": [0.5]}, r"columns of different lengths \('step: 2', 'val_auc: 1'\)"),
        ({"step": 1, "val_auc": 0.5}, r"column 'step' is 1, expected a list of values"),
        ({"val_auc": "0.5"}, r"column 'val_auc' is '0.5', expected a list of values"),
        ({1: [0.5], "1": [0.5]}, r"two columns with one name"),
        ([{"step": 1, "val_auc": float("nan")}], r"the records, \[0\]: nan in column 'val_auc' is not a finite number"),
        ([{"step": 2, "val_auc": 0.5}, {"step": 1, "val_auc": 0.5}], r"\[1\]: column 'val_auc': after step 2, back to"),
        ({"step": [1], "val_auc": [np.ones(2)]}, r"row 0: array\(\[1\., 1\.\]\) in column 'val_auc' is not a finite"),
    ],
)
def test_what_is_no_log(data: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(data)


def test_a_run_cannot_be_chosen_in_records() -> None:
    with pytest.raises(InputError, match=r"--run 'a': it chooses among the runs.*not in records in memory"):
        read(RECORDS, run="a")
