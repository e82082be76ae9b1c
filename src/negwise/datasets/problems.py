"""Rows that cannot be read: an error by default, a reported exception where the caller allows a number of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from negwise.errors import InputError

GIVE_UP = 100_000
"""Bad rows beyond what is allowed, after which nobody would allow them all: a file of another kind."""

KINDS = 100
"""Kinds of problem that are told apart, so that memory does not grow with the bad rows."""


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
    """Keeps the first ``skip_bad`` bad rows and counts the rest, so that one error says how many there are in all."""

    skip_bad: int = 0
    problems: list[Problem] = field(default_factory=list)
    count: int = 0
    _beyond: Problem | None = None
    _kinds: Counter[str] = field(default_factory=Counter)

    def bad(self, file: Path, where: str, what: str) -> None:
        self.add(Problem(str(file), where, what))

    def add(self, problem: Problem) -> None:
        self.count += 1
        if len(self.problems) < self.skip_bad:
            self.problems.append(problem)
        elif self._beyond is None:
            self._beyond = problem
        if problem.what in self._kinds or len(self._kinds) < KINDS:
            self._kinds[problem.what] += 1
        if self.count - self.skip_bad > GIVE_UP:
            raise InputError(f"{self._beyond}. More than {self.count - 1:,} rows are bad: is this the right file?")

    def settle(self, good: int) -> None:
        """At the end of reading ``good`` rows: an error where more are bad than were allowed, or none is good."""
        if good == 0 and self.count:
            first = (*self.problems, self._beyond)[0]
            raise InputError(f"{first}. No row is left of {self.count:,}: is this the right file?")
        first = self._beyond
        if first is None:
            return
        before = f" ({self.skip_bad} bad rows were skipped before it)" if self.skip_bad else ""
        what, most = self._kinds.most_common(1)[0]
        kind = f", {most:,} of them: {what}" if most > 1 else ""
        many = f" In all {self.count:,} rows are bad{kind}." if self.count > 1 else ""
        them = "them" if self.count > 1 else "it"
        raise InputError(
            f"{first}{before}.{many} Mend {them}, or leave {them} out: --skip-bad {self.count} "
            f"(in Python: skip_bad={self.count})."
        )


def check_skip_bad(skip_bad: int) -> int:
    if isinstance(skip_bad, bool) or not isinstance(skip_bad, int) or skip_bad < 0:
        raise InputError(f"skip_bad={skip_bad!r}, expected a whole number, 0 or more")
    return skip_bad


def shown(value: object, most: int = 60) -> str:
    """``value`` as a message shows it: quoted, and short."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
