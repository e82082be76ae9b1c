"""From a path to memory-mapped tables: detect the format, parse once, cache."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from negwise.datasets.bad_rows import BadRows, Problem, check_skip_bad
from negwise.datasets.data_names import shown
from negwise.datasets.docstring_pairs import read_docstring_pairs
from negwise.datasets.file_rows import choose_roles, read_blocks
from negwise.datasets.formats import DetectedFormat, detect_format
from negwise.datasets.frames import as_path
from negwise.datasets.positives import VALUE, Condition, parse_condition
from negwise.datasets.read_interactions import read_interactions
from negwise.datasets.read_mind import read_mind
from negwise.datasets.read_pairs import read_pairs
from negwise.datasets.row_blocks import RowBlock
from negwise.datasets.table_cache import LAYOUT, cache_folder, cached_facts, content_key, get_or_build, open_tables
from negwise.datasets.use_of_columns import Remark, describe_columns
from negwise.errors import InputError
from negwise.stages import Progress, stage


@dataclass(frozen=True, eq=False)
class Source:
    """Parsed data. ``tables`` are memory-mapped Arrow tables; ``digest`` is a hash of their content.

    ``key`` opens the same data again (`open_source`), in any process that has the cache and without the files.
    ``columns`` are role -> column; ``remarks`` say what was done with the other columns and files.
    """

    path: str
    kind: str
    """One of mind, movielens, sasrec, interactions and pairs."""
    tables: dict[str, Any]
    digest: str
    folder: Path
    problems: tuple[Problem, ...] = ()
    parts: tuple[str, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()

    @cached_property
    def word_list(self) -> list[str]:
        """The words of all texts; tables hold texts as row numbers of it."""
        return self.tables["words"]["id"].to_pylist()

    @property
    def key(self) -> str:
        """The name of its folder in the cache."""
        return self.folder.name


def read(
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    positive: str | None = None,
    skip_bad: int = 0,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Source:
    """Read a file, a folder, a pattern or the embedded ``docs``, from the cache if possible. (A folder: ``./docs``.)

    ``data`` may also be a frame, a table, a dataset or a list of dictionaries (`negwise.datasets.frames`). ``columns``
    maps roles (user, item, time, impression, label; left, right, negatives) to columns, where names are not recognized.
    ``positive``, as ``"rating>=4"``, says which rows are positives; the others get the label 0. A bad row raises
    `InputError` with its file and line. ``skip_bad`` allows that many bad rows, which ``problems`` of the result lists.
    ``cache`` replaces `cache_folder`. ``progress`` is called with the share that is read.
    """
    check_skip_bad(skip_bad)
    cache_path = Path(cache) if cache is not None else cache_folder()
    path = as_path(data, cache_path)
    name = shown(Path(path))
    if os.fspath(path) == "clicks":
        raise InputError("clicks is simulated, not read from a file. In Python: negwise.datasets.clicks().task().")
    if os.fspath(path) == "docs":
        folder, facts = read_docstring_pairs(cache_path)
        return Source("docs", "pairs", open_tables(folder), facts["digest"], folder)
    roles = dict(columns or {})
    condition = None if positive is None else parse_condition(positive)
    detected = detect_format(Path(path), roles)
    if detected.kind == "mind" and condition is not None:
        raise InputError(f"{name}: positive={condition}, but MIND has clicks of its own. Leave it out.")
    chosen = {} if detected.kind == "mind" else choose_roles(detected, roles, condition)

    def build(folder: Path) -> dict[str, Any]:
        bad_rows = BadRows(skip_bad)
        with stage(f"reading {name}", progress) as tell:
            rows = _read(detected, folder, bad_rows, chosen, condition, name, tell)
        bad_rows.check_limit(rows)
        if not rows:
            raise InputError(f"{name}: {detected.kind} without a single row. Is the file complete?")
        listed = [asdict(problem) | {"file": files.index(problem.file)} for problem in bad_rows.problems]
        facts = {"path": name, "kind": detected.kind, "digest": key, "parts": detected.parts}
        remarks = describe_columns(detected, chosen, condition, folder)
        taken = {role: name for role, name in chosen.items() if role != VALUE}  # a remark tells of that one
        used = {"columns": taken, "remarks": [asdict(remark) for remark in remarks]}
        return {**facts, **used, "rows": rows, "problems": listed}

    files = [shown(file) for file in detected.files]
    options: list[Any] = [sorted(roles.items()), detected.parts, *([] if condition is None else [str(condition)])]
    if detected.partitions:  # the files do not have them
        options.append([sorted(values.items()) for values in detected.partitions])
    with stage(f"looking whether {name} was read before"):
        key = content_key(f"{detected.kind}/{detected.form}", detected.files, options, cache_path)
    folder, facts = get_or_build(f"{key}-{LAYOUT}", cache_path, build)
    bad_rows = BadRows(skip_bad)
    for problem in facts["problems"]:
        bad_rows.add_problem(Problem(**problem | {"file": files[problem["file"]]}))
    bad_rows.check_limit(facts["rows"])  # skip_bad may be lower now than when the cache was written
    return _source(name, facts, folder, tuple(bad_rows.problems))


def open_source(key: str, cache: str | os.PathLike[str] | None = None) -> Source:
    """The data that `read` parsed before, by its ``key``; no file but the cache is opened."""
    folder = (Path(cache) if cache is not None else cache_folder()) / key
    facts = cached_facts(folder)
    if facts is None:
        raise InputError(f"{folder}: this data is not in the cache. Read it again, or set NEGWISE_CACHE as before.")
    return _source(facts["path"], facts, folder, ())


def _source(path: str, facts: dict[str, Any], folder: Path, problems: tuple[Problem, ...]) -> Source:
    remarks = tuple(Remark(**remark) for remark in facts.get("remarks", ()))
    return Source(
        path,
        facts["kind"],
        open_tables(folder),
        facts["digest"],
        folder,
        problems,
        tuple(facts["parts"]),
        facts.get("columns", {}),
        remarks,
    )


def _read(
    detected: DetectedFormat,
    folder: Path,
    bad_rows: BadRows,
    chosen: Mapping[str, str],
    positive: Condition | None,
    name: str,
    progress: Progress | None,
) -> int:
    """Write the tables of ``detected``. Returns the number of good rows."""
    place = name
    blocks = read_blocks(detected, chosen, progress)

    def noted() -> Iterator[RowBlock]:
        nonlocal place
        for block in blocks:
            place = block.place
            yield block

    try:
        if detected.kind == "mind":
            return read_mind(detected, folder, bad_rows, progress)
        if detected.kind == "pairs":
            return read_pairs(noted(), folder, bad_rows, chosen)
        return read_interactions(noted(), folder, bad_rows, name, positive)
    except MemoryError as error:
        raise InputError(f"{place}: not enough memory ({error}). Is this the right file?") from error
