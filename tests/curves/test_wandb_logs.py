"""A run's history as W&B exports it, and, where `wandb` is installed, the file of a real offline run."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from negwise.curves import read
from negwise.errors import InputError, MissingExtra

STEPS, TRAIN, VAL = [0, 100, 200], [0.5, 0.6, 0.7], [0.5, 0.55, 0.65]
HISTORY = [
    {"_step": row, "_runtime": row / 2, "_timestamp": 1.7e9 + row, "trainer/global_step": step, "train/auc": train,
     "val/auc": val, "gradients": {"_type": "histogram", "values": [1]}}
    for row, (step, train, val) in enumerate(zip(STEPS, TRAIN, VAL, strict=True))
]  # fmt: skip


def as_csv(rows: list[dict], path: Path) -> None:
    """As ``run.history().to_csv()`` has it: an index without a name comes first."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["", *rows[0]])
        writer.writeheader()
        writer.writerows({"": number, **row} for number, row in enumerate(rows))


WRITERS = {
    "csv": as_csv,
    "lines": lambda rows, path: path.write_text("".join(json.dumps(row) + "\n" for row in rows)),
    "list": lambda rows, path: path.write_text(json.dumps(rows)),
    "indented list": lambda rows, path: path.write_text(json.dumps(rows, indent=2)),
    "columns": lambda rows, path: path.write_text(json.dumps({name: [row[name] for row in rows] for name in rows[0]})),
    "pandas": lambda rows, path: path.write_text(
        json.dumps({name: {str(index): row[name] for index, row in enumerate(rows)} for name in rows[0]}, indent=1)
    ),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_the_history_of_a_run(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "wandb-history"
    WRITERS[kind](HISTORY, path)
    curves = read(path)
    assert curves.kind == "wandb_history"
    # _step counts the calls of wandb.log: it yields to the steps of training
    assert curves.columns == {"step": "trainer/global_step", "train_auc": "train/auc", "val_auc": "val/auc"}
    np.testing.assert_array_equal(curves.val_steps, STEPS)
    np.testing.assert_array_equal(curves.train_auc, TRAIN)
    np.testing.assert_array_equal(curves.val_auc, VAL)


def test_steps_of_training_that_do_not_cover_the_curves(tmp_path: Path) -> None:
    rows = [{**row, "trainer/global_step": None if number == 1 else 9} for number, row in enumerate(HISTORY)]
    path = tmp_path / "log"
    WRITERS["lines"](rows, path)
    assert read(path).columns["step"] == "_step"


def test_two_columns_of_steps_beside_it_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    WRITERS["lines"]([{**row, "iteration": 1} for row in HISTORY], path)
    with pytest.raises(InputError, match=r"step may be any of 'trainer/global_step', 'iteration'"):
        read(path)


def test_a_run_on_disk_without_the_package(negwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "wandb" / "offline-run-20260101_000000-abc"
    folder.mkdir(parents=True)
    (folder / "run-abc.wandb").write_bytes(b":W&B\xe1\xbe\x00")
    monkeypatch.setitem(sys.modules, "wandb", None)
    for path in (folder / "run-abc.wandb", folder, folder.parent, tmp_path):
        with pytest.raises(MissingExtra, match=r"run-abc\.wandb: a run of W&B on disk.*Type: pip install wandb, or"):
            read(path)
    code, _, err = negwise("estimate", folder)
    assert code == 1
    assert "pip install wandb" in err and "Traceback" not in err


def test_several_runs_on_disk_are_listed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = tmp_path / "wandb" / f"run-20260101_000000-{name}"
        folder.mkdir(parents=True)
        (folder / f"run-{name}.wandb").write_bytes(b":W&B\xe1\xbe\x00")
    (tmp_path / "wandb" / "latest-run").symlink_to(folder)
    with pytest.raises(InputError, match=r"several logs: '.*run-a\.wandb', '.*run-b\.wandb'\. Pass one"):
        read(tmp_path)


needs_wandb = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of W&B itself, offline, with a record that is longer than a block of its file."""
    import wandb

    folder = tmp_path_factory.mktemp("project")
    settings = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    run = wandb.init(project="p", dir=folder, mode="offline", config={"k": 8.5, "lr": 0.1}, settings=settings)
    for row in HISTORY:
        run.log({name: row[name] for name in ("trainer/global_step", "train/auc", "val/auc")} | {"text": "x" * 50_000})
    run.finish()
    wandb.teardown()  # its service writes the last blocks after finish() has returned
    return folder


@needs_wandb
@pytest.mark.filterwarnings("ignore")
def test_a_real_offline_run(offline: Path) -> None:
    (file,) = offline.rglob("*.wandb")
    for path in (offline, offline / "wandb", file.parent, file):
        curves = read(path)
        assert (curves.kind, curves.source) == ("wandb_offline", str(file))
        assert curves.trained_k == (8.5, 8.5)
        np.testing.assert_array_equal(curves.val_steps, STEPS)
        np.testing.assert_array_equal(curves.train_auc, TRAIN)
        np.testing.assert_array_equal(curves.val_auc, VAL)


@needs_wandb
@pytest.mark.filterwarnings("ignore")
def test_a_real_offline_run_that_is_cut_or_broken(offline: Path, tmp_path: Path) -> None:
    (file,) = offline.rglob("*.wandb")
    data, cut = file.read_bytes(), tmp_path / "cut.wandb"
    counts = []
    for end in (*range(40, len(data), 997), len(data)):
        cut.write_bytes(data[:end])
        try:
            counts.append(len(read(cut).val_auc))
        except InputError as error:
            assert "nothing logged yet" in str(error)
            counts.append(0)
    assert set(counts) == {0, 1, 2, 3} and counts == sorted(counts)
    cut.write_bytes(data[:60_000] + bytes([data[60_000] ^ 0x55]) + data[60_001:])
    with pytest.raises(InputError, match=r"broken at byte \d+ \(checksum\)"):
        read(cut)
