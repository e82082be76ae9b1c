"""The log file of a path, and files that are not text."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from negwise.curves import read
from negwise.errors import InputError

LOGS = Path(__file__).parent / "logs"
RUN = '{"kind": "eval", "step": 1, "split": "val", "auc": 0.5}\n'


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("place", "log"),
    [
        ("metrics.csv", "metrics.csv"),
        ("version_3/metrics.csv", "metrics.csv"),
        ("lightning_logs/version_0/metrics.csv", "metrics.csv"),
        ("trainer_state.json", "trainer_state.json"),
        ("checkpoint-48/trainer_state.json", "trainer_state.json"),
    ],
)
def test_folders_as_frameworks_leave_them(tmp_path: Path, place: str, log: str) -> None:
    file = put(tmp_path / place, (LOGS / log).read_text())
    put(tmp_path / "model.bin", "")
    assert read(tmp_path).source == str(file)
    assert read(str(tmp_path)).val_auc is not None


@pytest.mark.parametrize("place", ["run.jsonl", "pilot/seed-0/run.jsonl"])
def test_folders_of_negwise(tmp_path: Path, place: str) -> None:
    put(tmp_path / place, RUN)
    put(tmp_path / "arms/4/seed-0/run.jsonl", RUN)
    assert read(tmp_path).source == str(tmp_path / place)


def test_the_latest_checkpoint_counts(tmp_path: Path) -> None:
    for step in (9, 48, 100, 20):
        put(
            tmp_path / f"checkpoint-{step}/trainer_state.json",
            f'{{"log_history": [{{"step": {step}, "eval_auc": 0.5}}]}}',
        )
    put(tmp_path / "checkpoint-200/model.safetensors", "")
    assert read(tmp_path).val_steps == [100]
    put(tmp_path / "trainer_state.json", (LOGS / "trainer_state.json").read_text())
    assert read(tmp_path).source == str(tmp_path / "trainer_state.json")


@pytest.mark.parametrize(
    "places",
    [
        ("run.jsonl", "metrics.csv"),
        ("version_0/metrics.csv", "version_1/metrics.csv"),
        ("pilot/seed-0/run.jsonl", "pilot/seed-1/run.jsonl"),
        ("checkpoint-5/trainer_state.json", "lightning_logs/version_0/metrics.csv"),
        ("checkpoint-5/trainer_state.json", "checkpoint-best/trainer_state.json"),
    ],
)
def test_several_logs_are_listed(tmp_path: Path, places: tuple[str, str]) -> None:
    files = [put(tmp_path / place, "x") for place in places]
    with pytest.raises(InputError, match=r"several logs.*Pass one of them") as caught:
        read(tmp_path)
    assert all(repr(str(file)) in str(caught.value) for file in files)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no log in this folder \(run\.jsonl, .*Pass the file itself"):
        read(tmp_path)
    (tmp_path / "metrics.csv").mkdir()
    (tmp_path / "version_0" / "metrics.csv").mkdir(parents=True)
    with pytest.raises(InputError, match="no log in this folder"):
        read(tmp_path)
    with pytest.raises(InputError, match="no such file or folder"):
        read(tmp_path / "missing.csv")
    with pytest.raises(InputError, match="no such file or folder"):
        read("a\0b")
    with pytest.raises(InputError, match=r"cannot be read \(File name too long\)"):
        read(tmp_path / ("x" * 5000))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        read(tmp_path / "pipe")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shutil.copy(LOGS / "metrics.csv", tmp_path)

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)  # chmod does not stop root
    with pytest.raises(InputError, match=r"metrics\.csv: cannot be read \(Permission denied\)"):
        read(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf \n\n", "the file is empty"),
        ("step,val_auc\n1,.5\n".encode("utf-16"), r"line 1: not UTF-8 text \(byte 0xff\)\. Save the file as UTF-8"),
        ("step,val_auc,näme\n".encode("latin-1"), r"line 1: not UTF-8 text \(byte 0xe4\)"),
        (b"step,val_auc\n1,.5\n2,\x80\n", r"line 3: not UTF-8 text \(byte 0x80\)"),
        (b"step,val_auc\n1,\0\n", r"a binary file \(NUL bytes\)"),
        (b"\x89PNG\r\n\x1a\n", r"line 1: not UTF-8 text \(byte 0x89\)"),
    ],
)
def test_files_that_are_not_text(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        read(path)
