"""Rows that cannot be read: an error by default, a reported exception where the caller allows a number of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from negwise.errors import InputError


@dataclass(frozen=True)
class Problem:
    """One bad row: the file, where in it ("line 7", "row 7" of a Parquet file), and what is wrong."""

    file: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}, {self.where}: {self.what}"


@dataclass
class Tolerance:
    """Collects bad rows and raises at the first beyond ``skip_bad``, so that it never holds more than that."""

    skip_bad: int = 0
    problems: list[Problem] = field(default_factory=list)

    def bad(self, file: Path, where: str, what: str) -> None:
        self.add(Problem(str(file), where, what))

    def add(self, problem: Problem) -> None:
        if len(self.problems) == self.skip_bad:
            before = f" ({self.skip_bad} bad rows were skipped before it)" if self.skip_bad else ""
            allow = max(10, 10 * self.skip_bad)
            raise InputError(
                f"{problem}.{before} Mend the row, or allow some: --skip-bad {allow} (in Python: skip_bad={allow})."
            )
        self.problems.append(problem)


def check_skip_bad(skip_bad: int) -> int:
    if isinstance(skip_bad, bool) or not isinstance(skip_bad, int) or skip_bad < 0:
        raise InputError(f"skip_bad={skip_bad!r}, expected a whole number, 0 or more")
    return skip_bad


def shown(value: object, most: int = 60) -> str:
    """``value`` as a message shows it: quoted, and short."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
