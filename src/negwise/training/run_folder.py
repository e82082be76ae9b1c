"""A run is a folder: ``config.json``, ``run.jsonl``, ``checkpoints/<step>/``, ``result.json``, ``model/``, and
``test_ranks.safetensors``, the rank of every positive of the test split, so that runs compare query by query."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from negwise.errors import InputError, NegwiseError
from negwise.files import read_json, write_atomically, write_json
from negwise.metrics import Ranks
from negwise.records import ASSETS, CONFIG, MODEL, RunResult, write_record

RANKS = "test_ranks.safetensors"


HORIZON = ("steps", "epochs", "eval_every")
"""How long a run is, and where it is evaluated: what a paused run may change."""


def check_config(out: Path, config: Mapping[str, Any], *, paused: Callable[[], bool] = lambda: False) -> None:
    """A folder that has a run in it has this one: else say what differs, and touch nothing.

    Where the run is ``paused`` its horizon may differ.
    """
    if not (out / CONFIG).exists():
        return
    before = read_json(out / CONFIG)
    changed = config_changes(before, config)
    if changed and not config_changes(_but_horizon(before), _but_horizon(config)) and paused():
        return
    if changed:
        what = "the data" if any(line.startswith("data_digest ") for line in changed) else "the config"
        raise InputError(
            f"{out} has a run of its own, and {what} changed since: {'; '.join(changed)}. Nothing was touched. "
            "Resume with what it was, or choose another folder"
        )


def config_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two configs, a phrase each."""
    old, new = _leaves(before), _leaves(json.loads(canonical(now)))
    missing = object()
    return [
        f"{name} was {old.get(name, 'not there')!r} and is {new.get(name, 'not there')!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name, missing) != new.get(name, missing)
    ]


def write_config(out: Path, config: Mapping[str, Any]) -> None:
    """Write the config of a run; one that is there is this one but for its horizon (`check_config`)."""
    if not (out / CONFIG).exists() or config_changes(read_json(out / CONFIG), config):
        with resumable(out / CONFIG):
            write_json(out / CONFIG, config)


def write_assets(out: Path, assets: Callable[[], Mapping[str, bytes]]) -> None:
    """Write the files that the model needs beside its weights, once; ``model.json``, which names them, comes last."""
    if (out / ASSETS / MODEL).exists():
        return
    for name, content in assets().items():
        path = out / ASSETS / name
        with resumable(path):
            write_atomically(path, content)


def write_result(path: Path, result: RunResult) -> None:
    with resumable(path):
        write_record(path, result)


def write_ranks(out: Path, ranks: Ranks) -> None:
    """The ranks of a run's test split, in whole numbers as small as will hold them."""
    values = {field.name: getattr(ranks, field.name) for field in fields(Ranks)}
    small = {name: array.astype(np.min_scalar_type(int(array.max(initial=0)))) for name, array in values.items()}
    with resumable(out / RANKS):
        write_atomically(out / RANKS, save(small))


def read_ranks(out: Path) -> Ranks:
    """What `write_ranks` wrote in the folder of a run."""
    path = out / RANKS
    if not path.exists():
        raise InputError(f"{path}: no such file; expected the folder of a run that has ended and has a test split")
    return Ranks(**{name: array.astype(np.int64) for name, array in load(path.read_bytes()).items()})


def fingerprint(config: Mapping[str, Any]) -> str:
    """A hash of ``config`` that a checkpoint carries, so that it is never put into another run."""
    return hashlib.blake2b(canonical(_but_horizon(config)).encode(), digest_size=16).hexdigest()


def _but_horizon(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {key: value for key, value in part.items() if key not in HORIZON} if isinstance(part, dict) else part
        for name, part in config.items()
    }


def canonical(config: Mapping[str, Any]) -> str:
    try:
        return json.dumps(config, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the config of a run is plain JSON: numbers, text, lists and mappings; {error}") from error


@contextmanager
def resumable(path: Path) -> Iterator[None]:
    """Where the disk refuses ``path``, say what is safe and what to do."""
    try:
        yield
    except OSError as error:
        raise NegwiseError(
            f"could not write {path}: {error.strerror or error}. Nothing is lost up to the last checkpoint. "
            "Make room and type the same command again"
        ) from error


def _leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves by their dotted names."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        name: leaf for key, part in value.items() for name, leaf in _leaves(part, f"{prefix}.{key}".lstrip(".")).items()
    }
