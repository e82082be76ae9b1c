"""Runs of MLflow: databases and folders by its schema, and, where MLflow is installed, what it writes itself."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from tracker_logs import database

from negwise.curves import read
from negwise.errors import InputError

TRAIN, VAL = {0: 0.5, 100: 0.6, 200: 0.7}, {0: 0.5, 100: 0.55, 200: 0.65}


def store(folder: Path, name: str, metrics: dict[str, list[tuple[int, float]]], **more: str) -> Path:
    """A run in the file store, ``mlruns/EXPERIMENT/RUN``."""
    run = folder / "1" / f"id-{name}"
    (run / "params").mkdir(parents=True)
    (run / "metrics").mkdir()
    stage = more.pop("stage", "active")
    (folder / "1" / "meta.yaml").write_text("experiment_id: '1'\nname: pilots\n")
    (run / "meta.yaml").write_text(f"lifecycle_stage: {stage}\nrun_id: id-{name}\nrun_name: {name}\nstatus: 3\n")
    for key, points in metrics.items():
        file = run / "metrics" / key
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{1000 + time} {value} {step}\n" for time, (step, value) in enumerate(points)))
    for key, value in more.items():
        (run / "params" / key).write_text(value)
    return run


METRICS = {"train/auc": list(TRAIN.items()), "val_auc": list(VAL.items()), "loss": [(7, float("nan"))]}


def assert_curves(curves, val=VAL) -> None:
    assert curves.kind == "mlflow"
    np.testing.assert_array_equal(curves.train_steps, list(TRAIN))
    np.testing.assert_array_equal(curves.train_auc, list(TRAIN.values()))
    np.testing.assert_array_equal(curves.val_steps, list(val))
    np.testing.assert_array_equal(curves.val_auc, list(val.values()))


def test_a_database_with_one_run(tmp_path: Path) -> None:
    file = database(tmp_path / "mlflow.db", {"a": METRICS, "only losses": {"loss": [(0, 1.0)]}})
    before = file.read_bytes()
    for path in (file, tmp_path):
        curves = read(path)
        assert_curves(curves)
        assert curves.source == f"{file}, run a"
        assert curves.trained_k is None
    assert file.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mlflow.db"]  # nothing is left beside it
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(before))
    assert_curves(read(packed))


def test_several_runs_are_listed_and_one_is_chosen(negwise, tmp_path: Path) -> None:
    runs = {"a": METRICS, "b": {**METRICS, "val_auc": [(0, 0.5), (9, 0.75)]}, "gone": METRICS}
    file = database(tmp_path / "mlflow.db", runs, deleted=["gone"])
    with pytest.raises(
        InputError, match=r"2 runs: id-a \(a, experiment pilots\), id-b \(b, .*type --run id-a"
    ) as caught:
        read(file)
    assert "gone" not in str(caught.value)
    for name in ("b", "id-b"):
        assert_curves(read(file, run=name), {0: 0.5, 9: 0.75})
        code, out, err = negwise("estimate", file, "--run", name, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["pilot"]["val_auc"] == [0.5, 0.75]
    code, _, err = negwise("estimate", file, "--run", "c")
    assert code == 2
    assert "--run 'c': no run has that name or id. It has 2 runs: id-a (a, experiment pilots)" in err


def test_the_page_of_a_run(negwise, tmp_path: Path) -> None:
    file = database(tmp_path / "mlflow.db", {"a": METRICS, "b": METRICS}, [("k", "8.5", "id-b")])
    code, _, err = negwise("report", file, "--out", tmp_path / "page.html")
    assert code == 2 and "2 runs: id-a" in err
    code, _, err = negwise("report", file, "--run", "b", "--out", tmp_path / "page.html")
    assert (code, err) == (0, "")
    assert "trained with K = 8.5" in (tmp_path / "page.html").read_text()


def test_two_runs_of_one_name_are_told_apart_by_id(tmp_path: Path) -> None:
    file = database(tmp_path / "mlflow.db", {"a": METRICS, "b": METRICS})
    with sqlite3.connect(file) as connection:
        connection.execute("update runs set name = 'a'")
    connection.close()
    with pytest.raises(InputError, match=r"--run 'a': 2 runs have that name. It has 2 runs: id-a .*id-b"):
        read(file, run="a")
    assert_curves(read(file, run="id-b"))


def test_k_among_the_parameters(tmp_path: Path) -> None:
    params = [("k", "8.5", "id-a"), ("lr", "1e-3", "id-a"), ("k", "auto", "id-b")]
    file = database(tmp_path / "mlflow.db", {"a": METRICS, "b": METRICS}, params)
    assert read(file, run="a").trained_k == (8.5, 8.5)
    assert read(file, run="b").trained_k is None
    assert "K = 8.5" in read(file, run="a").estimate().reasons[0]


def test_a_step_that_was_logged_twice_has_its_later_value(tmp_path: Path) -> None:
    file = database(
        tmp_path / "mlflow.db", {"a": {**METRICS, "val_auc": [(0, 0.5), (200, 0.9), (100, 0.55), (200, 0.65)]}}
    )
    curves = read(file)
    assert_curves(curves)
    assert curves.notes == ("'val_auc' was logged more than once at step 200: the later values are used.",)


def test_metrics_without_steps(tmp_path: Path) -> None:
    at_zero = [(0, value) for value in VAL.values()]
    curves = read(database(tmp_path / "a.db", {"a": {"val_auc": at_zero}}))
    assert curves.val_steps is None
    np.testing.assert_array_equal(curves.val_auc, list(VAL.values()))
    with pytest.raises(InputError, match=r"'val_auc' has 3 values, all at step 0, and 'train/auc' has steps"):
        read(database(tmp_path / "b.db", {"a": {**METRICS, "val_auc": at_zero}}))


def test_databases_that_cannot_be_used(tmp_path: Path) -> None:
    broken = database(tmp_path / "broken.db", {"a": METRICS})
    broken.write_bytes(broken.read_bytes()[:5000])
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("create table runs (a)")
    connection.close()
    for file in (broken, other):
        with pytest.raises(InputError, match=r"broken or not one of MLflow \(.*Expected its tables runs"):
            read(file)
    with pytest.raises(InputError, match="the database has no runs"):
        read(database(tmp_path / "none.db", {}))
    with pytest.raises(InputError, match=r"run a, step 3: nan in column 'val_auc' is not a finite number"):
        read(database(tmp_path / "nan.db", {"a": {"val_auc": [(3, float("nan"))]}}))
    with pytest.raises(InputError, match="nothing logged yet"):
        read(database(tmp_path / "empty.db", {"a": {}}))


def test_a_database_that_a_run_writes_to(tmp_path: Path) -> None:
    file = database(tmp_path / "mlflow.db", {"a": METRICS})
    connection = sqlite3.connect(file)
    connection.execute("pragma journal_mode=wal")
    connection.execute("insert into metrics values ('val_auc', 0.75, 2000, 'id-a', 300, 0)")
    connection.commit()  # in the write-ahead log, not yet in the file
    assert_curves(read(file), {**VAL, 300: 0.75})
    connection.close()


def test_the_file_store(tmp_path: Path) -> None:
    run = store(tmp_path / "mlruns", "a", METRICS, k="8.5")
    store(tmp_path / "mlruns", "gone", METRICS, stage="deleted")
    store(tmp_path / "mlruns" / ".trash", "trash", METRICS)
    for path in (tmp_path, tmp_path / "mlruns", tmp_path / "mlruns" / "1", run):
        curves = read(path)
        assert_curves(curves)
        assert curves.source == f"{run}, run a"
        assert curves.trained_k == (8.5, 8.5)


def test_several_runs_of_the_file_store(tmp_path: Path) -> None:
    runs = [store(tmp_path, name, METRICS) for name in ("a", "b")]
    with pytest.raises(InputError, match=r"several logs: '.*id-a' \('a'\), '.*id-b' \('b'\).*Type: negwise estimate"):
        read(tmp_path)
    for run in ("b", "id-b"):
        assert read(tmp_path, run=run).source == f"{runs[1]}, run b"


def test_lines_of_the_file_store(tmp_path: Path) -> None:
    run = store(tmp_path, "a", METRICS)
    (run / "metrics" / "val_auc").write_text("1 0.5\n2 0.625 10 data 9a\n\n3 0.75 20\n")
    np.testing.assert_array_equal(read(run).val_steps, [0, 10, 20])
    for line in ("x", "1", "1 high 3", "1 0.5 three", "1 0.5 1.5"):
        (run / "metrics" / "val_auc").write_text(f"1 0.5 0\n{line}\n")
        with pytest.raises(InputError, match=rf"val_auc, line 2: '{line}', expected a time, a value and a step"):
            read(run)
    (run / "metrics" / "val_auc").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"val_auc: cannot be read"):
        read(run)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["database", "folder"])
def test_what_mlflow_itself_writes(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri("sqlite:///mlflow.db" if kind == "database" else (tmp_path / "mlruns").as_uri())
    mlflow.set_experiment("pilots")
    for name in ("a", "b"):
        with mlflow.start_run(run_name=name):
            mlflow.log_param("k", 8.5)
            for step, value in TRAIN.items():
                mlflow.log_metric("train/auc", value, step=step)
                mlflow.log_metric("val_auc", VAL[step], step=step)
            mlflow.log_metric("loss", float("nan"))
            mlflow.log_metric("most", float("inf"))
    with pytest.raises(InputError, match="2 runs: " if kind == "database" else "several logs: "):
        read(tmp_path)
    curves = read(tmp_path, run="b")
    assert_curves(curves)
    assert curves.trained_k == (8.5, 8.5)
