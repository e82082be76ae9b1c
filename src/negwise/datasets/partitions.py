"""Folders that have a value of a column in their names, as Hive and Spark write them: ``date=2024-05-01/0.parquet``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

from negwise.errors import InputError

_FOLDER = re.compile(r"([^=]+)=(.*)")
_NOTHING = ("", "__HIVE_DEFAULT_PARTITION__")

Partition = Mapping[str, str | None]
"""Column -> its value in every row of a file; None where it is missing."""


def is_partitioned(folder: Path) -> bool:
    """Whether a folder in ``folder`` has the name ``key=value``."""
    return any(entry.is_dir() and _FOLDER.fullmatch(entry.name) for entry in folder.iterdir())


def partition_folders(folder: Path, so_far: Partition | None = None) -> Iterator[tuple[Path, Partition]]:
    """``folder`` and those of its folders that are named ``key=value``, at any depth, with the values down to each."""
    values = dict(so_far or {})
    yield folder, values
    for entry in sorted(folder.iterdir()):
        match = _FOLDER.fullmatch(entry.name) if entry.is_dir() else None
        if match is not None:
            key, value = (unquote(part) for part in match.groups())
            yield from partition_folders(entry, {**values, key: None if value in _NOTHING else value})


def check_partitions(path: Path, found: Mapping[Path, Partition]) -> None:
    """Raise unless all files have values for the same columns."""
    first, *others = found.items()
    for file, values in others:
        if set(values) != set(first[1]):
            raise InputError(
                f"{path}: {file.relative_to(path)} has {_names(values)} in the names of its folders, but "
                f"{first[0].relative_to(path)} has {_names(first[1])}. Expected the same for all files. "
                "Pass one folder."
            )


def _names(values: Partition) -> str:
    return ", ".join(values) or "no column"
