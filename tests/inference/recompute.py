"""In a process of its own: the metrics of a model on queries from a file, by public functions and plain loops."""

import json
import math
import sys
from pathlib import Path

import numpy as np

import negwise as nw


def rows_of(model, asked):
    """(score, is positive) of each candidate of each query."""
    if "users" not in asked:
        scores = model.score(asked["queries"], asked["candidates"])
        for row, positive, excluded in zip(scores, asked["positives"], asked["excluded"], strict=True):
            left = set(excluded) - {positive}
            yield [(s, text == positive) for s, text in zip(row, asked["candidates"], strict=True) if text not in left]
        return
    everything = 10_000
    found = model.recommend(
        asked["users"], asked["histories"], n=everything, exclude_seen=False, candidates=asked.get("candidates")
    )
    for row, (items, positives) in enumerate(zip(found, asked["positives"], strict=True)):
        left = set(asked["excluded"][row]) - set(positives) if "excluded" in asked else ()
        yield [(score, item in positives) for item, score in items if item not in left]


def metrics_of(rows):
    """The mean over queries of each metric; scores that tie are refused, as this loop knows no ties."""
    found = {name: [] for name in ("auc", "mrr", "ndcg@5", "ndcg@10", "hit@5", "hit@10")}
    for row in rows:
        positives, negatives = ([score for score, right in row if right is kind] for kind in (True, False))
        assert not set(positives) & set(negatives)
        found["auc"] += [np.mean([p > n for n in negatives]) for p in positives]  # the mean is over positives
        places = [place for place, (_, right) in enumerate(sorted(row, key=lambda one: -one[0])) if right]
        found["mrr"].append(np.mean([1 / (place + 1) for place in places]))
        for n in (5, 10):
            best = sum(1 / math.log2(place + 2) for place in range(min(n, len(places))))
            found[f"ndcg@{n}"].append(sum(1 / math.log2(place + 2) for place in places if place < n) / best)
            found[f"hit@{n}"].append(float(places[0] < n))
    return {name: float(np.mean(values)) for name, values in found.items()}


if __name__ == "__main__":
    home = Path(sys.argv[1])
    names = sys.argv[2:]
    asked = json.loads((home / "queries.json").read_text())
    print(json.dumps({name: metrics_of(rows_of(nw.load(home / "runs" / name), asked[name])) for name in names}))
