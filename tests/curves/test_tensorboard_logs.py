"""Event files of torch's own writer and of TensorBoard's, against what was written to them."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tracker_logs import write_events as write

from negwise.curves import read
from negwise.errors import InputError, MissingExtra

pytest.importorskip("tensorboard")
TRAIN, VAL = {0: 0.5, 100: 0.625, 200: 0.75}, {0: 0.5, 100: 0.5625, 200: 0.6875}  # exact in float32


def assert_curves(curves, train: dict[int, float] | None, val: dict[int, float]) -> None:
    for split, expected in (("train", train), ("val", val)):
        if expected is not None:
            np.testing.assert_array_equal(getattr(curves, f"{split}_steps"), list(expected))
            np.testing.assert_array_equal(getattr(curves, f"{split}_auc"), list(expected.values()))


def test_torchs_writer(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path / "runs" / "one")) as writer:
        writer.add_text("note", "a text is no scalar")
        writer.add_histogram("weights", np.arange(9.0), 0)
        for step in TRAIN:
            writer.add_scalar("train/auc", TRAIN[step], step)
            writer.add_scalar("val/auc", VAL[step], step)
            writer.add_scalar("train/k", 8.5, step)
    curves = read(tmp_path)
    assert (curves.kind, curves.source) == ("tensorboard", str(tmp_path / "runs" / "one"))
    assert_curves(curves, TRAIN, VAL)
    assert curves.trained_k == (8.5, 8.5)


@pytest.mark.parametrize("tensors", [False, True])
def test_a_file_a_folder_and_a_packed_file(tmp_path: Path, tensors: bool) -> None:
    file = write(tmp_path, {"train_auc": TRAIN, "val_auc": VAL, "epoch": {0: 0, 100: 1}}, tensors=tensors)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    for path in (file, tmp_path, packed):
        assert_curves(read(path), TRAIN, VAL)


def test_folders_of_splits_are_one_run(tmp_path: Path) -> None:
    """As Keras writes them, and as `SummaryWriter.add_scalars` does."""
    write(tmp_path / "keras" / "train", {"epoch_auc": TRAIN})
    write(tmp_path / "keras" / "validation", {"epoch_auc": VAL})
    assert_curves(read(tmp_path / "keras"), TRAIN, VAL)
    write(tmp_path / "scalars", {"loss": {1: 0.5}})
    write(tmp_path / "scalars" / "auc_train", {"auc": TRAIN})
    write(tmp_path / "scalars" / "auc_val", {"auc": VAL})
    curves = read(tmp_path / "scalars")
    assert_curves(curves, TRAIN, VAL)
    assert curves.columns["train_auc"] == "auc_train/auc"


def test_a_run_called_train_is_no_split(tmp_path: Path) -> None:
    write(tmp_path / "train-7", {"train/auc": TRAIN, "val/auc": VAL})
    assert read(tmp_path).columns["val_auc"] == "val/auc"


def test_several_runs_are_listed(tmp_path: Path) -> None:
    for name in ("a", "b c"):
        write(tmp_path / name, {"val/auc": VAL})
    with pytest.raises(InputError, match=r"several logs.*Type: negwise estimate ") as caught:
        read(tmp_path)
    assert all(repr(str(tmp_path / name)) in str(caught.value) for name in ("a", "b c"))
    assert_curves(read(tmp_path, run="b c"), None, VAL)
    with pytest.raises(InputError, match=r"--run 'c': no run has that name"):
        read(tmp_path, run="c")


def test_a_later_file_continues_the_run(tmp_path: Path) -> None:
    write(tmp_path, {"train/auc": TRAIN, "val/auc": VAL}, name="1")
    write(tmp_path, {"val/auc": {200: 0.625, 300: 0.75}}, name="2")
    curves = read(tmp_path)
    assert_curves(curves, TRAIN, {0: 0.5, 100: 0.5625, 200: 0.625, 300: 0.75})
    assert curves.notes == ("'events.out.tfevents.2' starts again at step 200: its values replace the earlier ones.",)
    assert curves.notes[0] in curves.estimate().reasons


def test_a_run_that_starts_over_replaces_the_one_before(tmp_path: Path) -> None:
    write(tmp_path, {"val/auc": VAL}, name="1")
    write(tmp_path, {"val/auc": {0: 0.25, 100: 0.375}}, name="2")
    assert_curves(read(tmp_path), None, {0: 0.25, 100: 0.375})  # nothing is left of step 200


def test_the_start_of_a_session_drops_what_comes_after(tmp_path: Path) -> None:
    """What ``SummaryWriter(purge_step=150)`` writes, and TensorBoard obeys."""
    write(tmp_path, {"train/auc": TRAIN, "val/auc": VAL}, name="1")
    write(tmp_path, {"loss": {160: 1.0}}, name="2", restart=150)
    curves = read(tmp_path)
    assert_curves(curves, {0: 0.5, 100: 0.625}, {0: 0.5, 100: 0.5625})
    assert "starts again at step 150" in curves.notes[0]


def test_concurrent_files_do_not_replace_each_other(tmp_path: Path) -> None:
    write(tmp_path, {"train/auc": TRAIN}, name="1")
    write(tmp_path, {"val/auc": VAL}, name="2")
    curves = read(tmp_path)
    assert_curves(curves, TRAIN, VAL)
    assert curves.notes == ()


def test_values_without_steps_keep_their_order(tmp_path: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path))
    for value in (0.5, 0.75, 0.625):
        writer.add_event(Event(summary=Summary(value=[Summary.Value(tag="val/auc", simple_value=value)])))
    writer.close()
    curves = read(tmp_path)
    assert curves.val_steps is None
    np.testing.assert_array_equal(curves.val_auc, [0.5, 0.75, 0.625])


def test_files_that_are_cut_or_broken(tmp_path: Path) -> None:
    file = write(tmp_path, {"val/auc": VAL})
    data = file.read_bytes()
    counts = set()
    for end in range(len(data), 60, -1):
        file.write_bytes(data[:end])
        try:
            counts.add(len(read(file).val_auc))
        except InputError as error:
            assert "nothing logged yet" in str(error)
            counts.add(0)
    assert counts == {0, 1, 2, 3}  # each prefix has the whole records before its end
    for place in (len(data) - 10, len(data) - 20, 60):
        file.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        with pytest.raises(InputError, match=r"broken at byte \d+ \(checksum\)"):
            read(file)


def test_faults_of_values(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"step 5: nan in column 'val/auc' is not a finite number"):
        read(write(tmp_path / "nan", {"val/auc": {5: float("nan")}}))
    with pytest.raises(InputError, match=r"no column is named like.*'loss'"):
        read(write(tmp_path / "loss", {"loss": {5: 0.5}}))
    with pytest.raises(InputError, match=r"its event files hold no scalars"):
        read(write(tmp_path / "none", {}))


def test_the_package_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, {"val/auc": VAL})
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtra, match=r"pip install 'negwise\[tensorboard\]'"):
        read(file)


def test_on_the_command_line(negwise, tmp_path: Path) -> None:
    write(tmp_path, {"train/auc": TRAIN, "val/auc": VAL})
    code, out, err = negwise("estimate", tmp_path, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["pilot"]["val_auc"] == list(VAL.values())
