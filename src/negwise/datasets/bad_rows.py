"""Rows that cannot be read: an error by default; with ``skip_bad`` they are skipped and reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from negwise.datasets.data_names import shown
from negwise.errors import InputError

MAX_EXCESS = 100_000
"""Reading stops at this many bad rows beyond ``skip_bad``: the file must be of another kind."""

MAX_KINDS = 100
"""Most distinct problems that are counted, so that memory does not grow with the bad rows."""


@dataclass(frozen=True)
class Problem:
    """One bad row: the file, the place in it ("line 7", in a Parquet file "row 7"), and what is wrong."""

    file: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}, {self.where}: {self.what}"


@dataclass
class BadRows:
    """Collects the first ``skip_bad`` bad rows and counts the rest, so that one error can give the total."""

    skip_bad: int = 0
    problems: list[Problem] = field(default_factory=list)
    count: int = 0
    _beyond: Problem | None = None
    _kinds: Counter[str] = field(default_factory=Counter)

    def add_row(self, file: Path, where: str, what: str) -> None:
        self.add_problem(Problem(shown(file), where, what))

    def add_problem(self, problem: Problem) -> None:
        self.count += 1
        if len(self.problems) < self.skip_bad:
            self.problems.append(problem)
        elif self._beyond is None:
            self._beyond = problem
        if problem.what in self._kinds or len(self._kinds) < MAX_KINDS:
            self._kinds[problem.what] += 1
        if self.count - self.skip_bad > MAX_EXCESS:
            raise InputError(f"{self._beyond}. More than {self.count - 1:,} rows are bad: is this the right file?")

    def check_limit(self, good: int) -> None:
        """After reading ``good`` rows: raise if more than ``skip_bad`` rows are bad, or if no row is good."""
        if good == 0 and self.count:
            first = (*self.problems, self._beyond)[0]
            raise InputError(f"{first}. None of {self.count:,} rows could be read: is this the right file?")
        first = self._beyond
        if first is None:
            return
        before = f" ({self.skip_bad} bad rows were skipped before it)" if self.skip_bad else ""
        what, most = self._kinds.most_common(1)[0]
        kind = f", {most:,} of them: {what}" if most > 1 else ""
        many = f" In all {self.count:,} rows are bad{kind}." if self.count > 1 else ""
        them = "them" if self.count > 1 else "it"
        raise InputError(
            f"{first}{before}.{many} Correct {them}, or skip {them}: --skip-bad {self.count} "
            f"(in Python: skip_bad={self.count})."
        )


def check_skip_bad(skip_bad: int) -> int:
    if isinstance(skip_bad, bool) or not isinstance(skip_bad, int) or skip_bad < 0:
        raise InputError(f"skip_bad={skip_bad!r}, expected a whole number, 0 or more")
    return skip_bad
