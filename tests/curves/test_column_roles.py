"""Column names with their roles written by hand, and the errors of ambiguous columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from negwise.curves import read
from negwise.curves.column_roles import ROLES, quantity_of, split_of, words_of_column
from negwise.errors import InputError

NAMES = {
    "train_auc": ("train", "auc"),
    "Train AUC": ("train", "auc"),
    "training/roc-auc": ("train", "auc"),
    "trainAUC": ("train", "auc"),
    "metrics.train.rocAuc": ("train", "auc"),
    "train_auc_epoch": ("train", "auc"),
    "eval_train_auc": ("train", "auc"),
    "BinaryAUROC/train": ("train", "auc"),
    "val_auc": ("val", "auc"),
    "valAUROC": ("val", "auc"),
    "Validation ROC_AUC": ("val", "auc"),
    "valid/auc_1": ("val", "auc"),
    "[dev] auc": ("val", "auc"),
    "eval_auc": ("val", "auc"),
    "eval_val_auc": ("val", "auc"),
    "AUC (validation)": ("val", "auc"),
    "AUC": (None, "auc"),
    "train_val_auc": (None, "auc"),
    "test_auc": ("test", "auc"),
    "eval_test_auc": ("test", "auc"),
    "test/valid_auc": ("test", "auc"),
    "val_pr_auc": ("val", None),
    "val_auprc": ("val", None),
    "best_val_auc": ("val", None),
    "val/auc__MIN": ("val", None),
    "val_auc_std": ("val", None),
    "val_loss": ("val", None),
    "val_gauc": ("val", None),
    "auction_val": ("val", None),
    "eval_pairs_auc": ("val", "auc"),
    "eval_triplets_auc": ("val", "auc"),
    "queries_auc": (None, "auc"),
    "eval_auc_pairs": ("val", "pairs"),
    "eval_pairs_auc_pairs": ("val", "pairs"),
    "eval_pairs_auc_queries": ("val", None),
    "eval_triplets_auc_pairs": ("val", None),
    "val_auc_se": ("val", "se"),
    "val/auc_stderr": ("val", "se"),
    "train AUC standard error": ("train", "se"),
    "val_loss_se": ("val", None),
    "val_queries": ("val", "queries"),
    "n_train_queries": ("train", "queries"),
    "numValPairs": ("val", "pairs"),
    "train_pairs_per_second": ("train", None),
    "queries": (None, "queries"),
    "step": (None, "step"),
    "_step": (None, "step"),
    "globalStep": (None, "step"),
    "trainer/global_step": (None, "step"),
    "Iteration": (None, "step"),
    "epoch": (None, "epoch"),
    "steps_per_second": (None, None),
    "eval_steps_per_second": ("val", None),
    "epoch_time": (None, None),
    "max_steps": (None, None),
    "": (None, None),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_name_says(name: str) -> None:
    named = words_of_column(name)
    assert (split_of(named), quantity_of(named)) == NAMES[name]


@pytest.mark.parametrize(
    ("header", "columns", "message"),
    [
        ("step,val_auc,valid_auc", {}, r"val_auc may be any of 'val_auc', 'valid_auc'.*type --val-column NAME"),
        ("step,train_auc,trainAUROC", {}, r"any of 'train_auc', 'trainAUROC'.*type --train-column NAME"),
        ("step,global_step,val_auc", {}, r"step may be any of 'step', 'global_step'.*--step-column NAME"),
        ("val_auc,val_se,val_sem", {}, r"val_se may be any of 'val_se', 'val_sem'.*columns={'val_se': NAME}"),
        (
            "step,eval_pairs_auc,eval_triplets_auc",
            {},
            r"val_auc may be any of 'eval_pairs_auc', 'eval_triplets_auc'.*type --val-column NAME",
        ),
        ("step,loss", {}, r"no column is named like.*values: 'step', 'loss'.*--val-column NAME"),
        ("step,test_auc", {}, r"no column is named like.*values: 'step', 'test_auc'"),
        ("step,auc", {}, r"'auc': training or validation\?.*--val-column NAME.*--train-column NAME"),
        ("step,val_auc", {"val_auc": "auc"}, r"column 'auc', requested as val_auc, does not exist.*'step', 'val_auc'"),
        ("step,val_auc,", {"val_auc": ""}, r"column '', requested as val_auc, is empty on every line"),
        ("step,val_auc", {"validation": "val_auc"}, r"'validation' is not a role; the roles are 'step', 'train_auc'"),
        ("step,auc", {"val_auc": "auc", "train_auc": "auc"}, r"column 'auc' cannot be both curves"),
        ("step,val_auc,x", {"train_queries": "x"}, r"train_queries was requested, but there is no train_auc"),
    ],
)
def test_choices_that_cannot_be_made(tmp_path: Path, header: str, columns: dict[str, str], message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(header + "\n" + ",".join("1" if name else "" for name in header.split(",")) + "\n")
    with pytest.raises(InputError, match=message) as caught:
        read(path, columns=columns)
    assert "validation" in columns or str(path) in str(caught.value)


def test_counts_belong_to_the_curve_that_they_are_named_after() -> None:
    names = ("auc", "auc_se", "auc_queries", "auc_pairs")
    rows = [
        {"step": step, "train_auc": 0.5 + step / 10}
        | {
            f"eval_{data}_{name}": value
            for data in ("pairs", "triplets")
            for name, value in zip(names, of[data], strict=True)
        }
        for step in range(3)
        for of in [{"pairs": (0.5 + step / 20, 0.02, 30, 900), "triplets": (0.5 + step / 30, 0.03, 40, 800)}]
    ]
    for data, queries, pairs, se in (("pairs", 30, 900, 0.02), ("triplets", 40, 800, 0.03)):
        curves = read(rows, columns={"val_auc": f"eval_{data}_auc"})
        assert curves.val_queries is not None and curves.val_queries.tolist() == [queries] * 3
        assert curves.val_pairs is not None and curves.val_pairs.tolist() == [pairs] * 3
        assert curves.val_se is not None and curves.val_se.tolist() == [se] * 3


def test_a_log_without_a_training_auc_says_how_to_get_one() -> None:
    curves = read([{"step": step, "eval_auc": auc} for step, auc in enumerate((0.5, 0.7, 0.75))])
    with pytest.raises(InputError, match=r"no training AUC beside .*eval_dataset=.*train_auc=0"):
        curves.estimate()
    assert curves.estimate(train_auc=0.8).k >= 1


def test_an_empty_column_is_no_candidate(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,val_auc,valid_auc\n1,.5,\n2,.625, \n")
    assert read(path).columns["val_auc"] == "val_auc"


def test_roles_are_the_fields_of_curves() -> None:
    assert set(ROLES) == {"step", "k"} | {
        f"{s}_{q}" for s in ("train", "val") for q in ("auc", "se", "queries", "pairs")
    }
