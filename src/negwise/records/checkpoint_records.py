"""What a checkpoint folder holds, and whether it is whole: reading without torch.

``checkpoints/<step>/`` has weights, optimizer and samplers as safetensors, and state.json with the digests of the other
files and of itself, so that damage shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from negwise.errors import NegwiseError

FOLDER = "checkpoints"
WEIGHTS, OPTIMIZER, SAMPLERS, STATE = (
    "weights.safetensors", "optimizer.safetensors", "samplers.safetensors", "state.json",
)  # fmt: skip


class CheckpointError(NegwiseError):
    """A checkpoint could not be written or cannot be used. The message says what is left and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: its folder and what its state.json says."""

    folder: Path
    state: Mapping[str, Any]

    @property
    def step(self) -> int:
        return int(self.folder.name)


def latest(out: Path) -> Checkpoint | None:
    """The last checkpoint of the run folder ``out``, checked; None where there is none."""
    found = steps(out)
    return read_checkpoint(out, found[-1]) if found else None


def read_checkpoint(out: Path, step: int) -> Checkpoint:
    """The checkpoint of ``step``: each of its files is there and is what was written."""
    return checked(out / FOLDER / str(step))


def steps(out: Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    home = out / FOLDER
    return sorted(int(entry.name) for entry in home.iterdir() if entry.name.isdigit()) if home.is_dir() else []


def best_step(state: Mapping[str, Any], otherwise: int) -> int:
    """The step whose weights were best so far; ``otherwise`` where none was evaluated."""
    return int((state.get("best") or {"step": otherwise})["step"])


def checked(folder: Path, *only: str) -> Checkpoint:
    """The checkpoint in ``folder``, whose files, or ``only`` those named, are what was written."""
    state = read_state(folder)
    for name, digest in state["files"].items():
        if only and name not in only:
            continue
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            raise _damaged(folder, f"{name} cannot be read ({error.strerror})") from error
        if digest_of(content) != digest:
            raise _damaged(folder, f"{name} ({len(content):,} bytes) is cut off or changed")
    return Checkpoint(folder, state)


def read_state(folder: Path) -> dict[str, Any]:
    """The content of ``state.json``, checked by its own digest."""
    try:
        state: dict[str, Any] = json.loads((folder / STATE).read_bytes())
        digest = state.pop("digest")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise _damaged(folder, f"{STATE} cannot be read ({error})") from error
    if digest != own_digest(state):
        raise _damaged(folder, f"{STATE} was changed")
    return state


def digest_of(content: bytes) -> str:
    """128 bits of BLAKE2b, in hexadecimal."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def own_digest(state: Mapping[str, Any]) -> str:
    """The digest that a JSON object carries of itself."""
    return digest_of(json.dumps(state, sort_keys=True).encode())


def _damaged(folder: Path, what: str) -> CheckpointError:
    folder = folder.absolute()
    home = folder.parent
    if home.name != FOLDER or not folder.name.isdigit():
        return CheckpointError(f"{folder}: {what}. Restore it")
    step, there = int(folder.name), steps(home.parent)
    # A later checkpoint may hold this one to be the best.
    after = ", ".join(str(other) for other in there if other > step)
    remove = f"remove the folder and those after it ({after})" if after else "remove the folder"
    before = [other for other in there if other < step]
    rest = f"the run then resumes from step {before[-1]}" if before else "the run then starts over"
    return CheckpointError(f"{folder}: {what}. Restore it, or {remove}: {rest}")
