"""The K of a log, and where it is said: on the terminal, in JSON, on the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from negwise.curves import read
from negwise.curves.column_roles import quantity_of, words_of_column
from negwise.errors import InputError
from negwise.report.write_report import write_report

SAID = "trained with K = 8.5"


@pytest.mark.parametrize(
    "name", ["k", "K", "train/k", "train_k", "k_used", "num_negatives", "n_negatives", "numNegatives"]
)
def test_names_of_k(name: str) -> None:
    assert quantity_of(words_of_column(name)) == "k"


@pytest.mark.parametrize(
    "name", ["recall@k", "top_k", "val_k", "k_means", "negatives", "val_num_negatives", "ks", "kl"]
)
def test_names_of_other_things(name: str) -> None:
    assert quantity_of(words_of_column(name)) != "k"


def log(path: Path, name: str, ks: list[object]) -> Path:
    aucs = [(0.5, 0.5), (0.7, 0.6), (0.8, 0.65), (0.82, 0.66)]
    lines = [f"{step},{train},{val},{k}" for step, ((train, val), k) in enumerate(zip(aucs, ks, strict=True))]
    path.write_text("\n".join([f"step,train_auc,val_auc,{name}", *lines]) + "\n")
    return path


def test_k_is_said_everywhere(negwise, tmp_path: Path) -> None:
    file = log(tmp_path / "log.csv", "k", ["8.5"] * 4)
    assert read(file).columns["k"] == "k"
    code, out, _ = negwise("estimate", file)
    assert code == 0
    assert f"- This run was {SAID}" in out
    assert "K* from a run with K = 8.5 is not that of a pilot with K = 1" in out
    reasons = json.loads(negwise("estimate", file, "--json")[1])["reasons"]
    assert SAID in reasons[0]
    page = write_report([file], tmp_path / "page.html").read_text()
    assert SAID in page
    assert "does not say which K" not in page


def test_k_is_said_on_a_terminal(tmp_path: Path) -> None:
    from io import StringIO

    from rich.console import Console

    from negwise.terminal import show_estimate

    stream = StringIO()
    show_estimate(read(log(tmp_path / "log.csv", "k", ["8.5"] * 4)).estimate(), Console(file=stream, width=200))
    assert SAID in stream.getvalue()


def test_a_pilot_is_not_told_of(tmp_path: Path) -> None:
    file = log(tmp_path / "log.csv", "k", ["1", "1.0", "", "1"])
    assert read(file).trained_k == (1, 1)
    assert read(file).caveats() == ()
    assert "does not say which K" not in write_report([file], tmp_path / "page.html").read_text()


def test_a_log_without_k_says_nothing_of_it(tmp_path: Path) -> None:
    file = log(tmp_path / "log.csv", "loss", ["1"] * 4)
    assert read(file).trained_k is None
    assert "does not say which K" in write_report([file], tmp_path / "page.html").read_text()


def test_a_schedule(tmp_path: Path) -> None:
    curves = read(log(tmp_path / "log.csv", "train/k", ["1", "4", "8.5", "2"]))
    assert curves.trained_k == (1, 8.5)
    assert "trained with K from 1 to 8.5" in curves.caveats()[0]


def test_k_in_lines_without_an_evaluation_counts(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    records = [{"step": 1, "k": 20}, {"step": 2, "val_auc": 0.5}, {"step": 3, "k": 30, "k_used": 29.5}]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert read(file).trained_k == (20, 30)


def test_k_of_the_right_run_in_a_wandb_export(tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    file.write_text('"Step","a - val/auc","a - k","a - k__MIN","b - val/auc","b - k"\n"1","0.5","1","1","0.5","8.5"\n')
    assert read(file, columns={"val_auc": "a - val/auc"}).trained_k == (1, 1)
    assert read(file, columns={"val_auc": "b - val/auc"}).trained_k == (8.5, 8.5)


@pytest.mark.parametrize("value", ["auto", "-1", "nan", "1e300"])
def test_a_column_that_is_only_called_k(tmp_path: Path, value: str) -> None:
    file = log(tmp_path / "log.csv", "k", ["8.5", "8.5", "8.5", value])
    curves = read(file)
    assert curves.trained_k is None and "k" not in curves.columns
    with pytest.raises(InputError, match=rf"line 5: '{value}' in column 'k' is not a K, which is a number, 0 or more"):
        read(file, columns={"k": "k"})


def test_k_by_name(tmp_path: Path) -> None:
    file = log(tmp_path / "log.csv", "samples", ["3"] * 4)
    assert read(file).trained_k is None
    assert read(file, columns={"k": "samples"}).trained_k == (3, 3)
    with pytest.raises(InputError, match=r"column 'no', requested as k, does not exist.*columns=\{'k': NAME\}"):
        read(file, columns={"k": "no"})
