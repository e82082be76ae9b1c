"""Which column plays which role: users, items and times of interactions; left and right texts of pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from negwise.datasets.data_names import shown
from negwise.errors import InputError

INTERACTIONS = {
    "user": {"user", "userid", "uid", "visitor", "visitorid", "customer", "customerid"},
    "item": {
        "item",
        "itemid",
        "iid",
        "movie",
        "movieid",
        "product",
        "productid",
        "news",
        "newsid",
        "article",
        "articleid",
    },
    "time": {"time", "timestamp", "datetime", "date", "ts"},
    "impression": {"impression", "impressionid"},
    "label": {"label", "click", "clicked"},
}
PAIRS = {
    "left": {"left", "query", "title", "question", "anchor"},
    "right": {"right", "pos", "positive", "body", "answer", "abstract"},
    "negatives": {"negatives", "neg", "negative"},
}
SECOND_CHOICE = {"user": {"session", "sessionid"}}
"""Names that count where none of the others is there: a session is a user that does not come back."""
RATINGS = {"rating", "ratings", "score", "stars"}
NEGATIVE = "negative "
"""What the roles of numbered columns of negatives begin with."""
_NUMBERED = re.compile(r"neg(?:ative)?s?(\d{1,9})")
_RECBOLE = re.compile(r":(token|float)(_seq)?$")
NEEDED = {"interactions": ("user", "item"), "pairs": ("left", "right")}
ROLES = {"interactions": INTERACTIONS, "pairs": PAIRS}


def choose_columns(path: Path, kind: str, names: Sequence[str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Role -> column, for the roles that the table has; names decide, and an ambiguous role is an error."""
    roles = ROLES[kind]
    for role, name in wanted.items():
        if role not in roles:
            raise InputError(f"columns: {role!r} is not a role of {kind}; the roles are {', '.join(roles)}.")
        if name not in names:
            raise InputError(f"{shown(path)}: no column {name!r} for the role {role}. Columns: {', '.join(names)}.")
    chosen = dict(wanted)
    for role in roles:
        found = [] if role in chosen else candidates(role, kind, names)
        if len(found) > 1:
            raise InputError(
                f"{shown(path)}: {role} could be any of {', '.join(found)}. Choose one: --column {role}=NAME "
                f"(in Python: columns={{'{role}': NAME}})."
            )
        if found:
            chosen[role] = found[0]
    if kind == "pairs":
        chosen |= numbered_negatives(names)
    missing = [role for role in NEEDED[kind] if role not in chosen]
    if missing:
        raise InputError(f"{shown(path)}: no column for {', '.join(missing)}. Columns: {', '.join(names)}.")
    return chosen


def kind_of_columns(names: Sequence[str], wanted: Mapping[str, str]) -> str | None:
    """'interactions' or 'pairs' if the columns have its required roles, else None."""
    for kind, needed in NEEDED.items():
        if all(role in wanted or candidates(role, kind, names) for role in needed):
            return kind
    return None


def candidates(role: str, kind: str, names: Iterable[str]) -> list[str]:
    """The columns that can play ``role`` by their names."""
    return matching_names(names, ROLES[kind][role]) or matching_names(names, SECOND_CHOICE.get(role, set()))


def numbered_negatives(names: Iterable[str]) -> dict[str, str]:
    """Columns of one negative each, such as ``neg_1`` or ``negative_2``, in the order of their numbers."""
    found = sorted((int(match[1]), name) for name in names if (match := _NUMBERED.fullmatch(_normalize(name))))
    return {f"{NEGATIVE}{number}": name for number, name in found}


def matching_names(names: Iterable[str], known: set[str]) -> list[str]:
    """The names that match one of ``known`` in any spelling: ``User ID``, ``userId``, RecBole's ``user_id:token``."""
    return [name for name in names if _normalize(name) in known]


@lru_cache(maxsize=1024)
def _normalize(name: str) -> str:
    return re.sub(r"[\W_]+", "", _RECBOLE.sub("", name.lower()))
