"""The card of an exported model: what it is, its data, how good it is, which K and why, how to load it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import PurePath

from negwise.records import ModelRecord, Outcome, line_of_use

REACH = 1.6448536269514722
"""Standard errors of a two-sided 90% interval of a normal."""
_KINDS = {
    "pairs": "Finds the right text that belongs to a left one.",
    "sequences": "Recommends the next items of a sequence.",
    "impressions": "Recommends news by what a person clicked before.",
}


def model_card(record: ModelRecord, outcome: Outcome, histories: bool, extras: Sequence[str] = ()) -> str:
    """Markdown, with the front matter that model hubs read."""
    made = record.provenance
    counted = [
        f"{record.sizes[name]:,} {name[2:]}" for name in ("n_items", "n_users", "n_words") if name in record.sizes
    ]
    if record.task == "pairs":
        counted = [f"{record.sizes['n_items']:,} pairs", *counted[2:]]
    people = (
        []
        if record.task == "pairs"
        else [f"- Histories of users: {'in the folder' if histories else 'left out; pass histories of your own'}"]
    )
    lines = [
        "---",
        "library_name: negwise",
        f"tags: [{record.task}, {record.model}, infonce]",
        "---",
        "",
        f"# {record.model}",
        "",
        _KINDS[record.task],
        "",
        "## Load",
        "",
        "```python",
        "import negwise as nw",
        "",
        'model = nw.load("this/folder")',
        line_of_use(record),
        "```",
        "",
        "## Data",
        "",
        f"- {PurePath(made['data']).name if made.get('data') else 'not recorded'}: {', '.join(counted)}",
        f"- Split: {made.get('split') or 'not recorded'}; digest of the content: {made.get('data_digest') or 'none'}",
        *people,
        "",
        "## Quality",
        "",
        *quality(record, outcome),
        "",
        "## K",
        "",
        *why_k(record, outcome),
        "",
        "## Training",
        "",
        f"- negwise {made.get('negwise', 'not recorded')}, seed {made.get('seed', 'not recorded')}",
        f"- Settings: {', '.join(f'{name}={value}' for name, value in record.settings.items()) or 'the defaults'}",
        *([f"- {outcome.parameters:,} parameters"] if outcome.parameters is not None else []),
        *([f"- {outcome.steps:,} steps, best at {outcome.best_step}"] if outcome.steps is not None else []),
        *(["", "## Also here", "", *(f"- {one}" for one in extras)] if extras else []),
        "",
    ]
    return "\n".join(lines)


def quality(record: ModelRecord, outcome: Outcome) -> list[str]:
    """The metric that counted, and the others, on the test split; each with its 90% interval over queries."""
    scores = outcome.scores
    if scores is None:
        return ["- The run had not ended: there is no result on the test split."]
    others = [name for name in scores.metrics if re.fullmatch(r"mrr|(ndcg|hit)@\d+", name)]
    found = []
    for name in sorted({record.metric, "auc", *others}, key=lambda one: (one != record.metric, one)):
        value = scores.value(name)
        if value is not None:
            mark = " (the metric that counted)" if name == record.metric else ""
            reach = reach_in_words(name, value, scores.error(name), scores.queries)
            found.append(f"- {name} {value:.4f}, {reach}{mark}")
    on = f"On the test split, {scores.queries:,} queries" if scores.queries else "On the test split"
    return [f"{on}. auc is the share of the other candidates that score below the right one.", "", *found]


def reach_in_words(name: str, value: float, error: float | None, queries: int | None) -> str:
    """The 90% interval of a metric whose queries score from 0 to 1; where there is none, why.

    ``hit@n`` is a share of queries, whose standard error is 0 where all or none of them hit: Wilson's interval is not.
    """
    if name.startswith("hit@") and queries:
        low, high = wilson(value, queries)
    elif error is None:
        return "no interval: the standard error is not known"
    elif error == 0:
        return "no interval: all queries score the same"
    else:
        low, high = max(value - REACH * error, 0.0), min(value + REACH * error, 1.0)
    return f"90% interval {low:.4f} .. {high:.4f}"


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 90% interval of a share of n: ``(p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)``."""
    squared = REACH**2 / n
    middle, whole = share + squared / 2, 1 + squared
    half = math.sqrt(squared * share * (1 - share) + squared**2 / 4)
    return max((middle - half) / whole, 0.0), min((middle + half) / whole, 1.0)


def why_k(record: ModelRecord, outcome: Outcome) -> list[str]:
    """The rule for K, what it came to, and what set it."""
    rule = f"- Rule: `--k {record.k}`" if record.k else "- Rule: not recorded"
    why = [f"- Why: {_reason(record.k, outcome.k_origin)}"] if record.k else []
    if outcome.k is None:
        return [rule, *why]
    reason = f" ({outcome.k_reason})" if outcome.k_reason else ""
    return [rule, f"- K at the end of training: {outcome.k:.4g}{reason}", *why]


def _reason(rule: str, origin: str | None) -> str:
    """What the rule does, and who chose it where that is on record."""
    name = rule.partition(":")[0].strip().lower()
    said = {
        "online": "K grew as far as the model could tell positives from negatives; no pilot was needed",
        "metric": "the K that matches the metric that counted, M / n_w",
        "all": "every candidate was a negative",
        "warm": "a schedule that rises to its peak",
        "ans": "the paper's schedule, which rises to its peak and falls",
    }.get(name, "the run was asked for this number")
    return f"{said}; {origin}." if origin else f"{said}."
