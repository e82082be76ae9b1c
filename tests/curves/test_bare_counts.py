"""Columns called ``pairs`` or ``queries`` that are not the counts of an evaluation do no harm, and are told of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from negwise.curves import read
from negwise.errors import InputError

AUCS = [(0.5, 0.5), (0.7, 0.6), (0.8, 0.65), (0.82, 0.66)]


def log(path: Path, **columns: list[object]) -> Path:
    rows = [
        [step, train, val, *(column[step] for column in columns.values())] for step, (train, val) in enumerate(AUCS)
    ]
    path.write_text("\n".join(",".join(map(str, row)) for row in [["step", "train_auc", "val_auc", *columns], *rows]))
    return path


@pytest.mark.parametrize(
    "pairs", [[6000] * 4, [0, 640, 1280, 1920], ["", 1, 1, 1], ["many"] * 4, [0.5] * 4, [1, 2, 3, 4]]
)
def test_a_stray_column_of_pairs_is_no_error(negwise, tmp_path: Path, pairs: list[object]) -> None:
    file = log(tmp_path / "log.csv", pairs=pairs)
    curves = read(file)
    assert curves.val_pairs is None and curves.train_pairs is None
    assert curves.notes and all(note.startswith("Column 'pairs' was not used: ") for note in curves.notes)
    code, out, err = negwise("estimate", file, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["interval"] is None
    assert found["reasons"][: len(curves.notes)] == list(curves.notes)


@pytest.mark.parametrize("pairs", [[0, 640, 1280, 1920], [20] * 4, [""] * 3 + [9]])
def test_pairs_of_something_else_beside_queries(tmp_path: Path, pairs: list[object]) -> None:
    curves = read(log(tmp_path / "log.csv", queries=[500] * 4, pairs=pairs))
    np.testing.assert_array_equal(curves.val_queries, [500] * 4)
    assert curves.val_pairs is None
    assert "Column 'pairs' was not used" in curves.notes[0]
    assert curves.estimate().interval is not None


def test_counts_that_fit_are_used(tmp_path: Path) -> None:
    curves = read(log(tmp_path / "log.csv", queries=[500] * 4, pairs=[10_000] * 4))
    np.testing.assert_array_equal(curves.train_pairs, [10_000] * 4)
    assert curves.notes == ()


def test_queries_that_grow_are_not_those_of_an_evaluation(tmp_path: Path) -> None:
    curves = read(log(tmp_path / "log.csv", queries=[0, 64, 128, 192]))
    assert curves.val_queries is None
    assert curves.notes == (
        "Column 'queries' was not used: it is not one whole number, the same at every evaluation, so it does not count "
        "the queries of an AUC.",
    )


def test_pairs_of_a_split_without_queries(tmp_path: Path) -> None:
    curves = read(log(tmp_path / "log.csv", val_pairs=[6000] * 4))
    assert curves.val_pairs is None
    assert "Log val_queries too" in curves.notes[0]
    curves.estimate()


def test_pairs_that_are_not_needed_are_not_told_of(tmp_path: Path) -> None:
    curves = read(log(tmp_path / "log.csv", train_se=[0.01] * 4, val_se=[0.01] * 4, pairs=[9] * 4))
    assert curves.notes == ()
    assert curves.estimate().interval is not None


def test_what_was_asked_for_is_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: '0' in column 'pairs' is not a count"):
        read(log(tmp_path / "log.csv", pairs=[0, 1, 2, 3]), columns={"val_pairs": "pairs"})
    asked = read(log(tmp_path / "log.csv", pairs=[9] * 4), columns={"val_pairs": "pairs"})
    with pytest.raises(InputError, match=r"n_pairs: got a number without n_queries"):
        asked.estimate()
