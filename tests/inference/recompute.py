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
        asked["users"],
        asked["histories"],
        n=everything,
        exclude_seen=False,
        empty="serve",
        candidates=asked.get("candidates"),
    )
    for row, (items, positives) in enumerate(zip(found, asked["positives"], strict=True)):
        left = set(asked["excluded"][row]) - set(positives) if "excluded" in asked else ()
        yield [(score, item in positives) for item, score in items if item not in left]


def metrics_of(rows):
    """The mean over queries of each metric: what to expect if candidates that tie come in any order."""
    found = {name: [] for name in ("auc", "mrr", "ndcg@5", "ndcg@10", "hit@5", "hit@10")}
    for row in rows:
        scores = [score for score, _ in row]
        positives, negatives = ([score for score, right in row if right is kind] for kind in (True, False))
        for p in positives:  # the mean of AUC is over positives
            found["auc"].append(np.mean([(p > n) + (p == n) / 2 for n in negatives]))
        places = [
            range(sum(s > p for s in scores), sum(s >= p for s in scores)) for p in positives
        ]  # where each may be
        found["mrr"].append(np.mean([np.mean([1 / (place + 1) for place in some]) for some in places]))
        for n in (5, 10):
            best = sum(1 / math.log2(place + 2) for place in range(min(n, len(places))))
            gains = [np.mean([1 / math.log2(place + 2) if place < n else 0 for place in some]) for some in places]
            found[f"ndcg@{n}"].append(sum(gains) / best)
            found[f"hit@{n}"].append(1 - missed(places, n))
    return {name: float(np.mean(values)) for name, values in found.items()}


def missed(places, n):
    """The chance that none of the positives is among the first n: that those which tie drew none of the places left."""
    first = min(places, key=lambda some: some.start)
    alike, left = places.count(first), min(max(n - first.start, 0), len(first))
    return math.comb(len(first) - alike, left) / math.comb(len(first), left)


if __name__ == "__main__":
    home = Path(sys.argv[1])
    names = sys.argv[2:]
    asked = json.loads((home / "queries.json").read_text())
    print(json.dumps({name: metrics_of(rows_of(nw.load(home / "runs" / name), asked[name])) for name in names}))
