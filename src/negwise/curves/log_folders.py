"""The logs in a folder, as frameworks and trackers leave them.

A log is a file, or a folder: one with TensorBoard's event files, or the folder of one run in MLflow's file store.
What lies in the folder itself comes before what lies below it, and a text log before a tracker's: they tell the same.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from negwise.curves.column_roles import is_only_a_split, words_of_column
from negwise.curves.log_files import MAX_QUOTED
from negwise.errors import InputError, quote

LOG_NAMES = ("run.jsonl", "trainer_state.json", "metrics.csv")
LOG_PATTERNS = (
    "pilot/*/run.jsonl",  # a job of negwise
    "checkpoint-*/trainer_state.json",  # Hugging Face keeps the log in its checkpoints
    "version_*/metrics.csv",  # Lightning's CSVLogger
    "lightning_logs/version_*/metrics.csv",
)
EVENTS = "*tfevents*"
EVENT_DEPTH = 4
"""TensorBoard's folders are looked for so many levels below."""
WANDB_PATTERNS = ("*run-*/*.wandb", "wandb/*run-*/*.wandb")
MLFLOW_PATTERNS = ("*/meta.yaml", "*/*/meta.yaml", "mlruns/*/*/meta.yaml")
SQLITE_START = b"SQLite format 3\0"


def find_logs(path: Path) -> list[Path]:
    """The log ``path``, or the logs in the folder ``path``: at least one."""
    try:
        if path.is_file():
            return [path]
        folder, exists = path.is_dir(), path.exists()
        found = _logs_in(path) if folder else []
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if not folder:
        raise InputError(f"{path}: {'neither a file nor a folder' if exists else 'no such file or folder'}.")
    if not found:
        others = "TensorBoard's event files, runs of MLflow or W&B"
        raise InputError(
            f"{path}: no log in this folder ({', '.join(LOG_NAMES + LOG_PATTERNS)}, {others}). Pass the file itself."
        )
    return found


def several_logs_error(path: Path, found: list[Path], why: str = "") -> InputError:
    """That ``path`` has several logs, with their names and what to type."""
    shown = [quote(str(one), width=200) + _name_in_brackets(one) for one in found[:MAX_QUOTED]]
    more = f" and {len(found) - MAX_QUOTED} more" if len(found) > MAX_QUOTED else ""
    return InputError(
        f"{path}: several logs: {', '.join(shown)}{more}.{why} Pass one of them, not the folder. Type: negwise "
        f"estimate {shlex.quote(str(found[0]))}"
    )


def choose_run(path: Path, found: list[Path], run: str) -> Path:
    """The log of ``found`` whose folder, id or name is ``run``."""
    chosen = [one for one in found if run in _names_of(one)]
    if len(chosen) != 1:
        came = "no run has that name" if not chosen else f"{len(chosen)} runs have that name"
        raise several_logs_error(path, found, f" --run {quote(run)}: {came}.")
    return chosen[0]


def is_event_folder(folder: Path) -> bool:
    """Whether ``folder`` is a run of TensorBoard: event files in it, or in folders called ``train``, ``validation``."""
    return bool(event_folders(folder))


def event_folders(folder: Path) -> list[Path]:
    """The folders with event files that make one run: ``folder`` and those below it whose name is a split.

    Keras writes ``train`` and ``validation``; ``SummaryWriter.add_scalars("auc", ...)`` writes ``auc_train``.
    """
    below = sorted(one for one in folder.iterdir() if one.is_dir() and is_only_a_split(words_of_column(one.name)))
    return [one for one in (folder, *below) if event_files(one)]


def event_files(folder: Path) -> list[Path]:
    """The event files in ``folder``, in the order in which they were begun: the time is in their names."""
    return sorted(file for file in folder.glob(EVENTS) if file.is_file())


def is_database(file: Path) -> bool:
    """Whether ``file`` is a database of SQLite."""
    try:
        with file.open("rb") as stream:
            return stream.read(len(SQLITE_START)) == SQLITE_START
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error}).") from error


def is_mlflow_run(folder: Path) -> bool:
    """Whether ``folder`` is one run in MLflow's file store that was not deleted."""
    if not (folder / "metrics").is_dir() or not (folder / "meta.yaml").is_file():
        return False
    return _meta(folder, "lifecycle_stage") != "deleted"


def mlflow_run_name(folder: Path) -> str | None:
    """The name of the run, from ``meta.yaml``."""
    return _meta(folder, "run_name")


def _logs_in(folder: Path) -> list[Path]:
    named = [folder / name for name in LOG_NAMES if (folder / name).is_file()]
    return named or _trackers_in(folder) or _named_below(folder) or _trackers_below(folder)


def _named_below(folder: Path) -> list[Path]:
    found = _matches(folder, LOG_PATTERNS)
    # Each checkpoint of a run has the log so far, so the latest one has all of it.
    latest = max(map(_checkpoint_step, found), default=None)
    return [file for file in found if _checkpoint_step(file) in (-1, latest)]


def _trackers_in(folder: Path) -> list[Path]:
    databases = [file for file in sorted(folder.glob("*.db")) if file.is_file() and is_database(file)]
    itself = [folder] if is_event_folder(folder) or is_mlflow_run(folder) else []
    return [*itself, *_matches(folder, ("*.wandb",)), *databases]


def _trackers_below(folder: Path) -> list[Path]:
    runs = [file.parent for file in _matches(folder, MLFLOW_PATTERNS) if is_mlflow_run(file.parent)]
    levels = ["/".join(["*"] * depth + [EVENTS]) for depth in range(1, EVENT_DEPTH + 1)]
    events = dict.fromkeys(_event_root(folder, file.parent) for file in _matches(folder, levels))
    return [*_matches(folder, WANDB_PATTERNS), *runs, *sorted(events)]


def _event_root(top: Path, folder: Path) -> Path:
    """The folder of the run that ``folder`` belongs to: the one above, if its name is only a split."""
    return folder.parent if folder.parent != top and is_only_a_split(words_of_column(folder.name)) else folder


def _matches(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """The files below ``folder`` that match; what is hidden, as MLflow's ``.trash``, is left out."""
    found = [file for pattern in patterns for file in sorted(folder.glob(pattern)) if file.is_file()]
    hidden = (any(part.startswith(".") for part in file.relative_to(folder).parts) for file in found)
    return [file for file, hide in zip(found, hidden, strict=True) if not hide]


def _checkpoint_step(file: Path) -> int:
    match = re.fullmatch(r"checkpoint-([0-9]{1,18})", file.parent.name)
    return int(match[1]) if match else -1


def _meta(folder: Path, field: str) -> str | None:
    """A field of a run's ``meta.yaml``: one ``name: value`` a line."""
    text = (folder / "meta.yaml").read_text(encoding="utf-8", errors="replace")
    match = re.search(rf"^{field}:[ \t]*(.*?)[ \t]*$", text, re.MULTILINE)
    return match[1].strip("'\"") or None if match else None


def _names_of(log: Path) -> set[str | None]:
    folder = log if log.is_dir() else log.parent
    names: set[str | None] = {str(log), folder.name, log.stem}
    return names | {mlflow_run_name(folder)} if is_mlflow_run(folder) else names


def _name_in_brackets(log: Path) -> str:
    name = mlflow_run_name(log) if log.is_dir() and is_mlflow_run(log) else None
    return "" if name is None else f" ({quote(name)})"
