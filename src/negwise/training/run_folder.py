"""A run is a folder: ``config.json``, ``run.jsonl``, ``checkpoints/<step>/``, ``result.json``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from negwise.errors import InputError, NegwiseError
from negwise.files import write_atomically

CONFIG, RESULT = "config.json", "result.json"


def check_config(out: Path, config: Mapping[str, Any]) -> None:
    """A folder that has a run in it has this one: say what differs, and touch nothing."""
    if not (out / CONFIG).exists():
        return
    changed = changes(read_json(out / CONFIG), config)
    if changed:
        what = "the data" if any(line.startswith("data_digest ") for line in changed) else "the config"
        raise InputError(
            f"{out} has a run of its own, and {what} changed since: {'; '.join(changed)}. Nothing was touched. "
            "Go on with what it was, or choose another folder"
        )


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two configs, a phrase each."""
    old, new = _paths(before), _paths(json.loads(canonical(now)))
    return [
        f"{name} was {old.get(name, 'not there')!r} and is {new.get(name, 'not there')!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name, CONFIG) != new.get(name, CONFIG)
    ]


def write_config(out: Path, config: Mapping[str, Any]) -> None:
    """Write the config of a new run; one that is there is this one (`check_config`)."""
    if not (out / CONFIG).exists():
        write_json(out / CONFIG, config)


def fingerprint(config: Mapping[str, Any]) -> str:
    """A hash of ``config`` that a checkpoint carries, so that it is never put into another run."""
    return hashlib.blake2b(canonical(config).encode(), digest_size=16).hexdigest()


def canonical(config: Mapping[str, Any]) -> str:
    try:
        return json.dumps(config, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the config of a run is plain JSON: numbers, text, lists and mappings; {error}") from error


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}). Restore it, or choose another folder") from error


def write_json(path: Path, value: Any) -> None:
    with writing(path):
        write_atomically(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Where the disk refuses ``path``, say what stands and what to do."""
    try:
        yield
    except OSError as error:
        raise NegwiseError(
            f"could not write {path}: {error.strerror or error}. Nothing is lost up to the last checkpoint. "
            "Make room and type the same command again"
        ) from error


def _paths(value: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves by their dotted names."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        name: leaf for key, part in value.items() for name, leaf in _paths(part, f"{prefix}.{key}".lstrip(".")).items()
    }
