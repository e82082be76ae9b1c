"""What is in a data set, for people and for machines: counts as in the paper's Table 1, the ceiling for K, problems."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from negwise.datasets.problems import Problem

PROBLEMS_SHOWN = 10


@dataclass(frozen=True)
class Available:
    """Negatives that a positive can have: no K above ``most`` is ever filled; above ``median`` most rows are short."""

    least: int
    median: float
    mean: float
    most: int
    source: str


@dataclass(frozen=True)
class DataReport:
    """``counts`` are whole numbers and averages by name; ``density`` the share of (user, item) pairs with a positive.

    ``label_balance`` is the share of shown rows that are positive, None where only positives are given. ``truth`` is
    what a simulated world knows.
    """

    path: str
    kind: str
    counts: dict[str, float]
    density: float | None
    label_balance: float | None
    negatives: Available
    splits: tuple[str, ...]
    examples: tuple[dict[str, str], ...]
    problems: tuple[Problem, ...]
    digest: str
    truth: dict[str, float] | None = None

    def headline(self) -> str:
        """One sentence: what it is, and how far K can go."""
        return f"{self.path} holds {self.kind}; a positive has {_number(self.negatives.median)} negatives (median)."

    def facts(self) -> list[tuple[str, str]]:
        """The numbers, labelled, in the order of Table 1, then what bounds K, then problems."""
        facts = [("kind", self.kind)]
        facts += [(name.replace("_", " "), _number(value)) for name, value in self.counts.items()]
        if self.density is not None:
            facts.append(("density", f"{self.density:.3g}"))
        balance = "positives only" if self.label_balance is None else f"{self.label_balance:.4f} are positive"
        facts.append(("label balance", balance))
        has = self.negatives
        spread = f"{has.least}..{has.most}, median {_number(has.median)}, mean {_number(has.mean)}"
        facts += [("negatives per row", f"{spread} ({has.source})"), ("ceiling for K", _number(has.most))]
        facts += [(f"true {name}", f"{value:.4f}") for name, value in (self.truth or {}).items()]
        facts.append(("can be split by", ", ".join(self.splits) or "nothing: too few users, days and items"))
        facts.append(("content hash", self.digest))
        facts.append(("bad rows skipped", str(len(self.problems))))
        facts += [("problem", str(problem)) for problem in self.problems[:PROBLEMS_SHOWN]]
        left = len(self.problems) - PROBLEMS_SHOWN
        return [*facts, ("problems not shown", str(left))] if left > 0 else facts

    def explain(self) -> str:
        """The report in plain words, a line a fact, and a few rows."""
        facts = [f"{name}: {value}" for name, value in self.facts()]
        rows = [" | ".join(f"{name}: {value}" for name, value in row.items()) for row in self.examples]
        return "\n".join([self.headline(), "", *facts, "", *rows])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON; every problem is in it."""
        return asdict(self) | {
            "splits": list(self.splits),
            "examples": list(self.examples),
            "problems": [asdict(problem) for problem in self.problems],
        }


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
