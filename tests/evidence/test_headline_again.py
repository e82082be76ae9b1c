"""The headline table of docs/evidence.md a second time, from the records, without any code of the project."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import stats

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "evidence" / "records"
ROWS = {
    "items": "items-ten",
    "matching": "matching-ten",
    "docs": "docs-ten",
    "news": "news-ten",
    "items, longer": "items-long",
}
NAMES = {"auc": "AUC", "ndcg@10": "nDCG@10", "hit@5": "HR@5"}


class Record:
    def __init__(self, name):
        self.about = json.loads((RECORDS / f"{name}.json").read_text())
        self.arrays = load_file(RECORDS / f"{name}.safetensors")
        self.seeds, self.folds = self.about["seeds"], self.about["settings"]["folds"]
        arms = [arm for arm in self.about["arms"] if arm["role"] == "fixed"]
        self.ks = sorted(int(arm["rule"]) for arm in arms if len(arm["seeds"]) == len(self.seeds))

    def queries(self, k, seed, metric):
        """The metric of every query (Q,) from its standing; None where queries have several positives."""
        above = self.arrays[f"above/{k}/{seed}"].astype(float)
        tied = self.arrays.get(f"tied/{k}/{seed}", np.ones_like(above)).astype(float)
        positives = self.arrays[f"positives/{seed}"].astype(float)
        sizes = self.arrays[f"sizes/{seed}"].astype(float)
        if positives.max() > 1:
            return None
        if metric == "auc":
            return 1 - (above + (tied - 1) / 2) / (sizes - 1)
        # Among ties any place is as likely: the mean of the gains of the places that the positive may have.
        n, places = int(metric.split("@")[1]), np.arange(int(sizes.max()) + 2)
        gains = np.where(places < n, 1 / np.log2(places + 2) if metric.startswith("ndcg") else 1.0, 0.0)
        sums = np.r_[0.0, np.cumsum(gains)]
        return (sums[(above + tied).astype(int)] - sums[above.astype(int)]) / tied

    def mean(self, k, seed, metric):
        """From the standings where each query has one positive, else the score that training wrote."""
        found = self.queries(k, seed, metric)
        if found is None:
            arm = next(arm for arm in self.about["arms"] if arm["rule"] == str(k))
            return next(run["test"][metric] for run in arm["seeds"] if run["seed"] == seed)
        return float(found.mean())

    def level(self, k, metric):
        return float(np.mean([self.mean(k, seed, metric) for seed in self.seeds]))

    def gain(self, k, metric):
        """k less 1: the mean with its 95% interval."""
        if self.folds:
            gaps = {seed: self.mean(k, seed, metric) - self.mean(1, seed, metric) for seed in self.seeds}
            means = [np.mean([gap for seed, gap in gaps.items() if seed % self.folds == f]) for f in range(self.folds)]
            return np.mean(means), *stats.t.interval(0.95, len(means) - 1, np.mean(means), stats.sem(means))
        x = np.array([self.queries(k, s, metric) - self.queries(1, s, metric) for s in self.seeds])
        s, q = x.shape
        rows, columns = x.mean(1, keepdims=True), x.mean(0, keepdims=True)
        ms = [
            (q * ((rows - x.mean()) ** 2).sum() / (s - 1), s - 1),
            (s * ((columns - x.mean()) ** 2).sum() / (q - 1), q - 1),
            (((x - rows - columns + x.mean()) ** 2).sum() / ((s - 1) * (q - 1)), (s - 1) * (q - 1)),
        ]
        total = ms[0][0] + ms[1][0] - ms[2][0]
        df = total**2 / sum(square**2 / free for square, free in ms)
        if min(ms[0][0], ms[1][0]) <= ms[2][0]:  # a part below 0 is none
            total, df = max(ms[:2])
        reach = stats.t.ppf(0.975, df) * math.sqrt(total / x.size)
        return x.mean(), x.mean() - reach, x.mean() + reach

    def share(self, k, metric):
        """Of the gain of the K with the highest mean; between two K a straight line in log K."""
        means = {each: self.level(each, metric) for each in self.ks}
        shares = [(means[each] - means[1]) / (max(means.values()) - means[1]) for each in self.ks]
        return float(np.interp(math.log(min(k, self.ks[-1])), np.log(self.ks), shares))

    def default(self, metric):
        """max(64, M / n_w), at most M - 1."""
        many = round(float(np.mean([self.arrays[f"sizes/{seed}"].mean() for seed in self.seeds])))
        n = int(metric.split("@")[1])
        area = sum(1 / math.log2(place + 2) for place in range(n)) if metric.startswith("ndcg") else n
        return min(max(many / area, 64), many - 1)


def short(value):
    return f"{value:+.3f}".replace("0.", ".", 1)


@pytest.fixture(scope="module")
def page():
    text = (ROOT / "docs" / "evidence.md").read_text()
    table = re.search(r"<!-- table headline -->\n(.*?)<!-- end -->", text, re.S)[1]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0]: row[1:] for row in cells}


@pytest.mark.parametrize("name", ROWS)
def test_the_headline_again(page, name):
    record = Record(ROWS[name])
    star = record.about["k_star"]
    for metric in ("auc", record.about["top_n"]):
        mean, low, high = record.gain(star, metric)
        ks = (star, 100, 300, record.default(record.about["top_n"]))
        expected = [
            f"{record.level(1, metric):.3f}".lstrip("0"),
            str(star),
            f"{short(mean)} ({short(low)} to {short(high)})",
            *(f"{round(100 * record.share(k, metric)) + 0}%" for k in ks),
        ]
        assert page[f"{name}, {NAMES[metric]}"] == expected


def test_the_table_has_these_rows_and_no_other(page):
    assert len(page) == 2 * len(ROWS)
