"""Versions of Lightning's CSVLogger: a resumed run is one run, separate runs are listed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from negwise.curves import read
from negwise.errors import InputError


def version(folder: Path, number: int, rows: dict[int, float], hyperparameters: str | None = "lr: 0.1\n") -> Path:
    """``version_N`` with a training AUC at each step and a validation AUC in a line of its own, as Lightning has it."""
    place = folder / f"version_{number}"
    place.mkdir(parents=True)
    lines = ["epoch,step,train_auc,val_auc"]
    for step, auc in rows.items():
        lines += [f"{step // 100},{step},,{auc}", f"{step // 100},{step},{auc + 0.1},"]
    (place / "metrics.csv").write_text("\n".join(lines) + "\n")
    if hyperparameters is not None:
        (place / "hparams.yaml").write_text(hyperparameters)
    return place


def test_a_resumed_run_is_one_run(negwise, tmp_path: Path) -> None:
    logs = tmp_path / "lightning_logs"
    version(logs, 0, {99: 0.5, 199: 0.6, 299: 0.7, 399: 0.71})
    version(logs, 1, {299: 0.65, 399: 0.75})
    version(logs, 2, {499: 0.76})
    version(logs, 10, {599: 0.77})  # after version_2, not before it
    for path in (tmp_path, logs):
        curves = read(path)
        assert curves.kind == "lightning" and curves.source == str(path)
        np.testing.assert_array_equal(curves.val_steps, [99, 199, 299, 399, 499, 599])
        np.testing.assert_array_equal(curves.val_auc, [0.5, 0.6, 0.65, 0.75, 0.76, 0.77])
        np.testing.assert_array_equal(curves.train_steps, curves.val_steps)
        assert curves.notes == (
            "Read 4 versions as one run that was resumed: version_0 from step 99, version_1 from step 299, version_2 "
            "from step 499, version_10 from step 599. Where two have the same steps, the later one counts. To read one "
            "alone, pass its folder.",
        )
    code, out, err = negwise("estimate", tmp_path)
    assert (code, err) == (0, "")
    assert "- Read 4 versions as one run that was resumed" in out
    np.testing.assert_array_equal(read(logs / "version_1").val_steps, [299, 399])
    np.testing.assert_array_equal(read(logs, run="version_1").val_steps, [299, 399])


def test_what_a_later_version_does_not_repeat_is_gone(tmp_path: Path) -> None:
    """Steps of version_0 after the resume belong to a past that was undone."""
    version(tmp_path, 0, {99: 0.5, 199: 0.6, 249: 0.65, 299: 0.7})
    version(tmp_path, 1, {199: 0.61, 399: 0.8})
    np.testing.assert_array_equal(read(tmp_path).val_steps, [99, 199, 399])


def test_separate_runs_are_listed(tmp_path: Path) -> None:
    version(tmp_path, 0, {99: 0.5, 199: 0.6})
    version(tmp_path, 1, {99: 0.5, 199: 0.7})
    message = r"several logs: '.*version_0/metrics\.csv', '.*version_1/metrics\.csv'\. version_1 starts at step 99, "
    with pytest.raises(InputError, match=message + r"version_0 at 99: it is a run of its own\. Pass one of them"):
        read(tmp_path)


def test_other_hyperparameters_are_another_run(tmp_path: Path) -> None:
    version(tmp_path, 0, {99: 0.5, 199: 0.6})
    version(tmp_path, 1, {199: 0.5, 299: 0.7}, "lr: 0.2\n")
    with pytest.raises(InputError, match=r"version_1 has another hparams\.yaml than version_0: it is a run of its own"):
        read(tmp_path)


@pytest.mark.parametrize(
    "text", ["x", "epoch,val_auc\n1,.5\n", "step,val_auc\n,.5\n", "step,iteration,val_auc\n1,1,.5\n"]
)
def test_versions_without_steps_cannot_be_put_in_order(tmp_path: Path, text: str) -> None:
    version(tmp_path, 0, {99: 0.5})
    (version(tmp_path, 1, {}) / "metrics.csv").write_text(text)
    with pytest.raises(InputError, match=r"several logs.*One of them has no steps"):
        read(tmp_path)


def test_a_fault_in_a_version_is_named(tmp_path: Path) -> None:
    version(tmp_path, 0, {99: 0.5})
    version(tmp_path, 1, {199: 65.0})
    with pytest.raises(InputError, match=r"version_1, line 3: '65\.1' in column 'train_auc' is above 1"):
        read(tmp_path)


def test_versions_of_the_tensorboard_logger(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    for number, rows in enumerate(({99: 0.5, 199: 0.625}, {199: 0.75, 299: 0.875})):
        with tensorboard.SummaryWriter(str(tmp_path / "lightning_logs" / f"version_{number}")) as writer:
            writer.add_scalar("hp_metric", -1, 0)  # as Lightning does in every version
            for step, auc in rows.items():
                writer.add_scalar("val_auc", auc, step)
                writer.add_scalar("epoch", step // 100, step)
    curves = read(tmp_path)
    assert curves.kind == "tensorboard"
    np.testing.assert_array_equal(curves.val_auc, [0.5, 0.75, 0.875])
