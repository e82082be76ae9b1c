"""The card of an exported model: what it is, its data, how good it is, which K and why, how to load it."""

from __future__ import annotations

from collections.abc import Sequence

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
        f"- {made.get('data', 'not recorded')}: {', '.join(counted)}",
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
    values = {"auc": scores.auc, **{name: one for name, one in scores.metrics.items() if not name.endswith("_se")}}
    errors = {"auc": scores.auc_se, **{name[:-3]: one for name, one in scores.metrics.items() if name.endswith("_se")}}
    found = []
    for name in sorted(values, key=lambda one: one != record.metric):
        value, error = values[name], errors.get(name)
        if value is not None:
            reach = (
                "" if error is None else f", 90% interval {value - REACH * error:.4f} .. {value + REACH * error:.4f}"
            )
            mark = " (the metric that counted)" if name == record.metric else ""
            found.append(f"- {name} {value:.4f}{reach}{mark}")
    return [f"On the test split, {scores.queries:,} queries:" if scores.queries else "On the test split:", "", *found]


def why_k(record: ModelRecord, outcome: Outcome) -> list[str]:
    """The rule for K, what it came to, and what set it."""
    rule = f"- Rule: `--k {record.k}`" if record.k else "- Rule: not recorded"
    if outcome.k is None:
        return [rule]
    reason = f" ({outcome.k_reason})" if outcome.k_reason else ""
    return [rule, f"- K at the end of training: {outcome.k:.4g}{reason}", f"- Why: {_reason(record.k)}"]


def _reason(rule: str) -> str:
    name = rule.partition(":")[0].strip().lower()
    return {
        "online": "K grew as far as the model could tell positives from negatives; no pilot was needed.",
        "metric": "the K that matches the metric that counted, M / n_w.",
        "all": "every candidate was a negative.",
        "warm": "a schedule that rises to its peak.",
        "ans": "the paper's schedule, which rises to its peak and falls.",
    }.get(name, "it was set by hand.")
