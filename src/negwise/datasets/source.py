"""From a path to memory-mapped tables: recognise, read once, remember."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from negwise.datasets.cache import cache_folder, cached, content_key
from negwise.datasets.docs import read_docs
from negwise.datasets.problems import Problem, Tolerance, check_skip_bad
from negwise.datasets.read_interactions import read_interactions
from negwise.datasets.read_mind import read_mind
from negwise.datasets.read_pairs import read_pairs
from negwise.datasets.recognise import Found, recognise
from negwise.datasets.storing import open_tables
from negwise.errors import InputError


@dataclass(frozen=True, eq=False)
class Source:
    """Data as it was read. ``tables`` are Arrow tables, memory-mapped; ``digest`` names their content."""

    path: str
    kind: str
    """mind, movielens, sasrec, interactions or pairs."""
    tables: dict[str, Any]
    digest: str
    folder: Path
    problems: tuple[Problem, ...] = ()
    parts: tuple[str, ...] = ()


def read(
    path: str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    skip_bad: int = 0,
    cache: str | os.PathLike[str] | None = None,
) -> Source:
    """Read ``path``, or find what was read before: a file, a folder, or the embedded ``docs`` (a folder: ``./docs``).

    ``columns`` says which column plays a role (user, item, time, impression, label; left, right, negatives) where
    names do not. A bad row is an `InputError` with its file and line; ``skip_bad`` allows that many, and
    ``problems`` of the result has each. ``cache`` stands for `cache_folder`.
    """
    check_skip_bad(skip_bad)
    where = Path(cache) if cache is not None else cache_folder()
    if os.fspath(path) == "clicks":
        raise InputError(
            "clicks: a simulated world, which is made and not read. In Python: negwise.datasets.clicks().task()."
        )
    if os.fspath(path) == "docs":
        folder, facts = read_docs(where)
        return Source("docs", "pairs", open_tables(folder), facts["digest"], folder)
    wanted = dict(columns or {})
    found = recognise(Path(path), wanted)

    def build(folder: Path) -> dict[str, Any]:
        tolerance = Tolerance(skip_bad)
        rows = _read(found, folder, tolerance, wanted)
        tolerance.settle(rows)
        if not rows:
            raise InputError(f"{path}: {found.kind} without a single row. Is the file whole?")
        listed = [asdict(problem) | {"file": files.index(problem.file)} for problem in tolerance.problems]
        return {"kind": found.kind, "rows": rows, "problems": listed}

    files = [str(file) for file in found.files]
    key = content_key(f"{found.kind}/{found.form}", found.files, [sorted(wanted.items()), found.parts], where)
    folder, facts = cached(key, where, build)
    tolerance = Tolerance(skip_bad)
    for problem in facts["problems"]:
        tolerance.add(Problem(**problem | {"file": files[problem["file"]]}))
    tolerance.settle(facts["rows"])  # what was allowed when it was read may not be allowed now
    return Source(str(path), found.kind, open_tables(folder), key, folder, tuple(tolerance.problems), found.parts)


def _read(found: Found, folder: Path, tolerance: Tolerance, columns: Mapping[str, str]) -> int:
    """Write the tables of ``found``; how many rows were good."""
    if found.kind == "mind":
        return read_mind(found, folder, tolerance)
    if found.kind == "pairs":
        return read_pairs(found, folder, tolerance, columns)
    return read_interactions(found, folder, tolerance, columns)
