"""Seven small models, trained by the command line, and the queries of their test splits as people would write them."""

from __future__ import annotations

import numpy as np

from negwise.datasets import prepare, read
from negwise.requests import TASK_OF
from tests.golden.golden_runs import RUNS, arguments, write_data

MODELS = tuple(RUNS)


def queries_of(model, data):
    """Queries, positives and candidates of the test split of a model's data, by texts and ids alone."""
    words = RUNS[model]
    source = read(data / words[words.index("--data") + 1])
    history = int(words[words.index("--history") + 1]) if "--history" in words else 50
    split = words[words.index("--split") + 1] if "--split" in words else None
    task = prepare(source, task=TASK_OF[model], split=split, history=history)
    test = task.test
    if task.name == "pairs":
        title, body = task.texts.fields["title"], task.texts.fields["body"]
        candidates = range(*test.candidates)
        return {
            "queries": [title[row] for row in test.positives],
            "positives": [body[row] for row in test.positives],
            "candidates": [body[row] for row in candidates],
            "excluded": [[body[row] for row in task.eval_exclusions[group]] for group in test.groups],
        }
    items = source.tables["news" if task.name == "impressions" else "items"]["id"].to_pylist()
    users = source.tables["users"]["id"].to_pylist()
    rows = np.unique(test.groups, return_index=True)[1] if task.name == "impressions" else np.arange(len(test))
    found = {
        "users": [users[test.users[row]] for row in rows],
        "histories": [[items[item] for item in test.items[test.start[row] : test.end[row]]] for row in rows],
    }
    if task.name == "impressions":
        shown = [task.impressions[test.groups[row]] for row in rows]
        clicked = [task.eval_exclusions[test.groups[row]] for row in rows]
        return found | {
            "candidates": [[items[item] for item in some] for some in shown],
            "positives": [[items[item] for item in some] for some in clicked],
        }
    return found | {
        "positives": [[items[test.positives[row]]] for row in rows],
        "excluded": [[items[item] for item in task.eval_exclusions[test.groups[row]]] for row in rows],
    }


__all__ = ["MODELS", "arguments", "queries_of", "write_data"]
