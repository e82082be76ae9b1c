"""Which column of a table plays which role; names decide, and of two candidates none is taken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

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
NEEDED = {"interactions": ("user", "item"), "pairs": ("left", "right")}
ROLES = {"interactions": INTERACTIONS, "pairs": PAIRS}


def kind_of(names: Sequence[str], wanted: Mapping[str, str]) -> str | None:
    """'interactions' or 'pairs', where the columns have what that needs; None where they have neither."""
    for kind, needed in NEEDED.items():
        if all(role in wanted or named(names, ROLES[kind][role]) for role in needed):
            return kind
    return None


def choose(path: Path, kind: str, names: Sequence[str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Role -> column, for the roles that the table has."""
    roles = ROLES[kind]
    for role, name in wanted.items():
        if role not in roles:
            raise InputError(f"columns: {role!r} is no role of {kind}; the roles are {', '.join(roles)}.")
        if name not in names:
            raise InputError(f"{path}: no column {name!r}, asked for as {role}. Columns: {', '.join(names)}.")
    chosen = dict(wanted)
    for role, known in roles.items():
        found = [] if role in chosen else named(names, known)
        if len(found) > 1:
            raise InputError(
                f"{path}: {role} may be any of {', '.join(found)}. To choose, in Python: columns={{'{role}': NAME}}."
            )
        if found:
            chosen[role] = found[0]
    missing = [role for role in NEEDED[kind] if role not in chosen]
    if missing:
        raise InputError(f"{path}: no column for {', '.join(missing)}. Columns: {', '.join(names)}.")
    if "impression" in chosen and "label" not in chosen:
        raise InputError(f"{path}: impressions without a label column (1 clicked, 0 shown): who clicked what? Add one.")
    return chosen


def named(names: Iterable[str], known: set[str]) -> list[str]:
    """The names that mean one of ``known``, however they are written: ``User ID``, ``user_id``, ``userId``."""
    return [name for name in names if _plain(name) in known]


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())
