"""`read` on files of the real frameworks, against `numpy.genfromtxt`, `json` and plain loops."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from negwise.curves import Curves, read
from negwise.errors import InputError

LOGS = Path(__file__).parent / "logs"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def assert_curve(steps: object, values: object, pairs: list[tuple[float, float]]) -> None:
    np.testing.assert_array_equal(steps, [step for step, _ in pairs])
    np.testing.assert_array_equal(values, [value for _, value in pairs])


def test_lightning_metrics() -> None:
    referee = np.genfromtxt(LOGS / "metrics.csv", delimiter=",", names=True)
    curves = read(LOGS / "metrics.csv")
    assert curves.kind == "lightning"
    assert curves.columns == {
        "step": "step",
        "train_auc": "train_auc",
        "val_auc": "val_auc",
        "val_queries": "val_queries",
    }
    for split in ("train", "val"):
        logged = referee[~np.isnan(referee[f"{split}_auc"])]
        assert len(logged) == 8
        np.testing.assert_array_equal(getattr(curves, f"{split}_steps"), logged["step"])
        np.testing.assert_array_equal(getattr(curves, f"{split}_auc"), logged[f"{split}_auc"])
    assert curves.val_auc is not None and curves.val_auc.dtype == np.float64
    np.testing.assert_array_equal(curves.val_queries, np.full(8, 64))
    assert curves.train_queries is None and curves.val_se is None and curves.val_pairs is None


@pytest.mark.parametrize(
    ("name", "train", "val"),
    [
        ("trainer_state.json", "train_auc", "eval_auc"),
        ("trainer_state_two_sets.json", "eval_train_auc", "eval_val_auc"),
    ],
)
def test_trainer_state(name: str, train: str, val: str) -> None:
    history = json.loads((LOGS / name).read_text())["log_history"]
    curves = read(LOGS / name)
    assert curves.kind == "trainer_state"
    assert curves.columns == {"step": "step", "train_auc": train, "val_auc": val}
    for column, steps, values in (
        (train, curves.train_steps, curves.train_auc),
        (val, curves.val_steps, curves.val_auc),
    ):
        pairs = [(entry["step"], entry[column]) for entry in history if column in entry]
        assert len(pairs) == 6
        assert_curve(steps, values, pairs)


@st.composite
def evaluations(draw: st.DrawFn) -> list[tuple[int, str, float, float, int]]:
    """(step, split, AUC, standard error, queries) of a run, in the order of the steps."""
    steps = sorted(draw(st.sets(st.integers(0, 10**6), min_size=1, max_size=8)))
    row = st.tuples(st.sampled_from(["train", "val"]), st.floats(0, 1), st.floats(0, 1), st.integers(1, 10**9))
    return [(step, *draw(row)) for step in steps]


def as_table(delimiter: str, rows: list[tuple[int, str, float, float, int]]) -> str:
    names = [f"{split}_{name}" for split in ("train", "val") for name in ("auc", "se", "queries")]
    lines = [["step", *names]]
    for step, split, *values in rows:
        cells, blank = [repr(value) for value in values], [""] * 3
        lines.append([str(step), *(cells + blank if split == "train" else blank + cells)])
    return "\n".join(delimiter.join(line) for line in lines)


def as_records(rows: list[tuple[int, str, float, float, int]]) -> list[dict[str, object]]:
    return [
        {"step": step, f"{split}_auc": auc, f"{split}_auc_se": se, f"{split}_queries": queries}
        for step, split, auc, se, queries in rows
    ]


def as_run(rows: list[tuple[int, str, float, float, int]]) -> list[dict[str, object]]:
    names = ("step", "split", "auc", "auc_se", "queries")
    return [{"kind": "eval", **dict(zip(names, row, strict=True))} for row in rows]


WRITERS = {
    "csv": lambda rows: as_table(",", rows),
    "tsv": lambda rows: as_table("\t", rows),
    "jsonl": lambda rows: "\n".join(map(json.dumps, as_records(rows))),
    "run": lambda rows: "\n".join(map(json.dumps, as_run(rows))),
    "trainer_state": lambda rows: json.dumps({"log_history": as_records(rows)}, indent=2),
}


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=evaluations())
def test_what_is_written_is_read(tmp_path: Path, kind: str, rows: list[tuple[int, str, float, float, int]]) -> None:
    curves = read(write(tmp_path, "log", WRITERS[kind](rows)))
    assert curves.kind == kind
    for split in ("train", "val"):
        logged = [(step, auc, se, queries) for step, name, auc, se, queries in rows if name == split]
        arrays = [getattr(curves, f"{split}_{name}") for name in ("steps", "auc", "se", "queries")]
        if logged:
            for array, expected in zip(arrays, zip(*logged, strict=True), strict=True):
                np.testing.assert_array_equal(array, expected)
        else:
            assert arrays == [None] * 4


def test_the_kind_comes_from_the_content(tmp_path: Path) -> None:
    for name, kind in (("metrics.csv", "lightning"), ("trainer_state.json", "trainer_state")):
        copy = write(tmp_path, f"{kind}.txt", (LOGS / name).read_text())
        assert read(copy).kind == kind
        np.testing.assert_array_equal(read(copy).val_auc, read(LOGS / name).val_auc)


def test_trainer_state_on_one_line(tmp_path: Path) -> None:
    compact = json.dumps(json.loads((LOGS / "trainer_state.json").read_text()))
    curves = read(write(tmp_path, "state.json", compact))
    np.testing.assert_array_equal(curves.val_auc, read(LOGS / "trainer_state.json").val_auc)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(("delimiter", "kind"), [(",", "csv"), ("\t", "tsv"), (";", "csv")])
def test_delimited_text(tmp_path: Path, newline: str, mark: str, delimiter: str, kind: str) -> None:
    rows = [(0, 0.5, 0.51, 0.01, 300, 6000), (10, 0.75, 0.625, 0.02, 300, 6000), (35, 0.9375, 0.6875, 0.015, 300, 6000)]
    lines = [("Iteration", "trainAUC", "valid-auroc", "valid-auroc-se", "n_val_queries", "val_pairs"), *rows]
    text = mark + newline.join(delimiter.join(map(str, line)) for line in lines) + newline
    curves = read(write(tmp_path, "log.txt", text))
    assert curves.kind == kind
    assert_curve(curves.train_steps, curves.train_auc, [(row[0], row[1]) for row in rows])
    assert_curve(curves.val_steps, curves.val_auc, [(row[0], row[2]) for row in rows])
    np.testing.assert_array_equal(curves.val_se, [row[3] for row in rows])
    np.testing.assert_array_equal(curves.val_queries, [300, 300, 300])
    np.testing.assert_array_equal(curves.val_pairs, [6000, 6000, 6000])


def test_json_lines_as_a_table(tmp_path: Path) -> None:
    records = [
        {"epoch": 0, "loss": float("nan"), "note": {"a": [1]}, "lr": "1e-3"},
        {"epoch": 0.5, "train": None, "train/roc_auc": 0.75},
        {"epoch": 1, "dev/roc_auc": 0.625, "queries": 5},
        {"epoch": 2, "dev/roc_auc": 1, "train/roc_auc": 0.8125, "queries": 5},
    ]
    curves = read(write(tmp_path, "log", "".join(json.dumps(record) + "\n\n" for record in records)))
    assert curves.kind == "jsonl"
    assert_curve(curves.train_steps, curves.train_auc, [(0.5, 0.75), (2, 0.8125)])
    assert_curve(curves.val_steps, curves.val_auc, [(1, 0.625), (2, 1.0)])
    # a count that names no split is that of every curve which has it throughout
    assert curves.val_queries is not None and curves.val_queries.tolist() == [5, 5]
    assert curves.train_queries is None


def test_a_bare_count_belongs_to_the_only_curve(tmp_path: Path) -> None:
    curves = read(write(tmp_path, "log.csv", "step,val_auc,queries\n1,.5,70\n2,.625,70\n"))
    np.testing.assert_array_equal(curves.val_queries, [70, 70])
    assert curves.train_auc is None and curves.train_steps is None
    assert curves.columns == {"step": "step", "val_auc": "val_auc", "val_queries": "queries"}


def test_steps_may_be_missing_and_epochs_serve(tmp_path: Path) -> None:
    curves = read(write(tmp_path, "a.csv", "val_auc\n.5\n.625\n.625\n"))
    assert curves.val_steps is None
    np.testing.assert_array_equal(curves.val_auc, [0.5, 0.625, 0.625])
    curves = read(write(tmp_path, "b.csv", "epoch,val_auc\n1,.5\n2,.625\n"))
    np.testing.assert_array_equal(curves.val_steps, [1, 2])
    curves = read(write(tmp_path, "c.csv", "epoch,global_step,val_auc\n1,50,.5\n2,100,.625\n"))
    np.testing.assert_array_equal(curves.val_steps, [50, 100])


def test_one_evaluation_logged_twice_is_one(tmp_path: Path) -> None:
    curves = read(write(tmp_path, "a.csv", "step,val_auc,loss\n1,.5,3\n2,.625,2\n2,.625,1\n"))
    assert_curve(curves.val_steps, curves.val_auc, [(1, 0.5), (2, 0.625)])


def test_named_columns_win(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "tick,step,val_auc,val_auc_2,probe,hits\n5,1,.5,.75,.9375,9\n6,2,.625,.8125,1,9\n")
    named = {"val_auc": "val_auc_2", "train_auc": "probe", "step": "tick", "train_queries": "hits", "val_se": None}
    curves = read(path, columns=named)
    assert_curve(curves.val_steps, curves.val_auc, [(5, 0.75), (6, 0.8125)])
    assert_curve(curves.train_steps, curves.train_auc, [(5, 0.9375), (6, 1.0)])
    np.testing.assert_array_equal(curves.train_queries, [9, 9])
    assert curves.columns == {role: name for role, name in named.items() if name is not None}


def test_a_column_named_for_one_curve_is_not_found_for_the_other(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "step,train_auc\n1,.5\n")
    curves = read(path, columns={"val_auc": "train_auc"})
    assert curves.train_auc is None
    np.testing.assert_array_equal(curves.val_auc, [0.5])


def test_auc_columns_without_a_split_are_reported(tmp_path: Path) -> None:
    curves = read(write(tmp_path, "a.csv", "epoch,auc,val_auc,test_auc\n1,.75,.5,.25\n"))
    assert curves.unassigned == ("auc",)
    assert curves.train_auc is None


# W&B gives exports only from its server, so these are typed by hand in the layout of its chart export: every cell
# quoted, the axis first, then "<run> - <metric>" with __MIN and __MAX for each run and metric, empty where not logged.
def wandb(*series: tuple[str, str, dict[int, float]], axis: str = "Step") -> str:
    names = [f"{run} - {metric}{end}" for run, metric, _ in series for end in ("", "__MIN", "__MAX")]
    steps = sorted({step for _, _, values in series for step in values})
    rows = [[step, *(values.get(step, "") for _, _, values in series for _ in range(3))] for step in steps]
    return "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in [[axis, *names], *rows])


TRAIN, VAL = {10: 0.625, 30: 0.75}, {20: 0.5625, 40: 0.6875}


@pytest.mark.parametrize("run", ["sunny-sea-7", "train-k1", "test - k=1, seed 0", "auc val"])
@pytest.mark.parametrize("axis", ["Step", "trainer/global_step"])
def test_wandb_export(tmp_path: Path, run: str, axis: str) -> None:
    text = wandb((run, "train/auc", TRAIN), (run, "val/auc", VAL), (run, "_step", {10: 10, 40: 40}), axis=axis)
    curves = read(write(tmp_path, "wandb_export.csv", text))
    assert curves.kind == "wandb"
    assert curves.columns == {"step": axis, "train_auc": f"{run} - train/auc", "val_auc": f"{run} - val/auc"}
    assert_curve(curves.train_steps, curves.train_auc, list(TRAIN.items()))
    assert_curve(curves.val_steps, curves.val_auc, list(VAL.items()))


def test_wandb_export_without_ranges(tmp_path: Path) -> None:
    path = write(tmp_path, "export.csv", '"Step","train-k1 - val/auc"\n"1","0.5"\n"2","0.625"\n')
    curves = read(path)
    assert curves.kind == "wandb"
    assert curves.columns == {"step": "Step", "val_auc": "train-k1 - val/auc"}


def test_a_dash_alone_does_not_make_a_wandb_export(tmp_path: Path) -> None:
    path = write(tmp_path, "log.csv", "step,AUC - train,AUC - validation\n1,0.75,0.5\n")
    assert read(path).columns == {"step": "step", "train_auc": "AUC - train", "val_auc": "AUC - validation"}


def test_wandb_export_of_several_runs(tmp_path: Path) -> None:
    better = {step: value + 0.125 for step, value in VAL.items()}
    path = write(
        tmp_path,
        "wandb_export.csv",
        wandb(("a", "val/auc", VAL), ("a", "train/auc", TRAIN), ("b", "val/auc", better), ("b", "train/auc", TRAIN)),
    )
    with pytest.raises(InputError, match=r"train_auc may be any of 'a - train/auc', 'b - train/auc'.*--train-column"):
        read(path)
    curves = read(path, columns={"val_auc": "b - val/auc"})
    assert curves.columns["train_auc"] == "b - train/auc"
    assert_curve(curves.val_steps, curves.val_auc, list(better.items()))


def test_wandb_curves_of_two_runs_do_not_mix(tmp_path: Path) -> None:
    path = write(tmp_path, "export.csv", wandb(("a", "train/auc", TRAIN), ("b", "val/auc", VAL)))
    with pytest.raises(InputError, match="training AUC of run 'a', validation AUC of run 'b'"):
        read(path)
    assert read(path, columns={"val_auc": "b - val/auc"}).train_auc is None
    both = read(path, columns={"val_auc": "b - val/auc", "train_auc": "a - train/auc"})
    assert_curve(both.train_steps, both.train_auc, list(TRAIN.items()))


def test_curves_cannot_be_reassigned() -> None:
    curves = read(LOGS / "metrics.csv")
    assert isinstance(curves, Curves)
    with pytest.raises(AttributeError):
        curves.kind = "csv"  # type: ignore[misc]


def test_importing_is_light() -> None:
    code = "import sys, negwise.curves; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not {"scipy", "pandas", "pyarrow", "torch", "numba", "altair", "rich", "typer"} & set(loaded)
