"""Records beside those of the tasks: other models, the paper's settings, longer training, more seeds, other data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.crossed import Contrast, crossed_contrast
from evidence.analysis import Analysis
from evidence.markdown import table, with_interval
from evidence.tasks import LABELS, TASKS
from negwise import NegwiseError, optimal_k
from negwise.jobs import bounded_auc
from negwise.report import metric_name

Analyses = Mapping[str, Analysis]
NOT_RUN = "not run"
LENGTHS = (1 / 3, 1 / 2, 1.0)


def other_models(found: Analyses) -> list[Analysis]:
    """Records of other models, each task's own model before them where it has a record."""
    return [
        one
        for task in dict.fromkeys(one.of for one in found.values() if one.variant == "model")
        for one in found.values()
        if one.of == task and (one.name == task or one.variant == "model")
    ]


def published(found: Analyses) -> list[Analysis]:
    """Records with the paper's settings."""
    return [one for one in found.values() if one.variant == "paper"]


def repeated(found: Analyses) -> list[tuple[Analysis, Analysis]]:
    """Records of a task that differ by more seeds on the same data, with all its K, each after the task's own."""
    return [
        (own, one)
        for own in found.values()
        for one in found.values()
        if own.name == own.of == one.of and not one.variant and _is_repeat(own, one)
    ]


def largest(found: Analyses) -> dict[str, Analysis]:
    """Each data set by the record with the most seeds."""
    own = {one.name: one for one in found.values() if one.name == one.of}
    repeats = sorted(repeated(found), key=lambda pair: len(pair[1].record["seeds"]))
    return own | {first.name: more for first, more in repeats}


def longer(found: Analyses) -> list[Analysis]:
    """Records of a task that differ from its own by more steps on the same data."""
    return [
        one
        for one in found.values()
        if one.of in found and not one.variant and _is_longer(found[one.of], one)
    ]  # fmt: skip


def models(found: Sequence[Analysis]) -> str:
    """K* against K = 1 and ANS against K*, for every model."""
    rows = []
    for one in found:
        star, seeds = str(one.k_star), str(len(one.record["seeds"]))
        for metric in ("auc", one.top_n):
            pairs = (star, "1"), (f"ans:{star}", star), (f"warm:{star}", star)
            cells = [_difference(one, rule, other, metric) for rule, other in pairs]
            rows.append([one.of, LABELS[one.model], seeds, metric_name(metric), star, *cells])
    head = ["task", "model", "seeds", "metric", "K\\*", "K\\* less K = 1", "ANS less K\\*", "WarmK less K\\*"]
    return table(head, rows)


def paper(found: Sequence[Analysis]) -> str:
    """The paper's settings: levels at K = 1, and what K* and the paper's own K gain."""
    rows = []
    for one in found:
        star, theirs = str(one.k_star), str(one.nearest(_paper_k(one)))
        for metric in ("auc", one.top_n):
            pairs = (star, "1"), (theirs, star), (f"ans:{star}", star)
            cells = [_difference(one, rule, other, metric) for rule, other in pairs]
            level = f"{one.measured[metric]['1'].mean:.4f}"
            shape = f"{one.record['steps']:,} of {one.record['settings']['batch_size']}"
            rows.append([one.of, shape, metric_name(metric), level, star, cells[0], theirs, *cells[1:]])
    head = ["task", "steps", "metric", "K = 1", "K\\*", "K\\* less K = 1", "paper's K", "it less K\\*", "ANS less K\\*"]
    return table(head, rows)


def pooled(found: Sequence[Analysis], metric: str) -> Contrast:
    """100 less K* over records that share a test split: the mean of each seed over the records that have it."""
    kept = [one for one in found if 100 in one.fixed and one.k_star not in (1, 100)]
    by: dict[int, list[np.ndarray]] = {}
    for one in kept:
        values = one.difference("100", str(one.k_star), metric).values
        assert values is not None
        for seed, row in zip(one.record["seeds"], values, strict=True):
            by.setdefault(seed, []).append(row)
    return crossed_contrast(np.stack([np.mean(rows, axis=0) for rows in by.values()]))


def lengths(found: Sequence[Analysis]) -> str:
    """K* as a shorter pilot would have it: the same curves, cut off. Median and range over seeds."""
    rows = []
    for one in found:
        for part in LENGTHS:
            ks = [k for k in (k_after(one, seed, part) for seed in one.record["seeds"]) if k is not None]
            told = f"{np.median(ks):,.0f} ({min(ks):,.0f} to {max(ks):,.0f})" if ks else "none"
            rows.append([one.name, f"{part * one.record['steps']:,.0f}", told, f"{len(ks)}"])
    return table(["record", "steps of the pilot", "K\\*, median and range", "seeds"], rows)


def k_after(one: Analysis, seed: int, part: float) -> float | None:
    """K* from the first ``part`` of the pilot with this seed; None where the curves do not determine it."""
    arm = next(arm for arm in one.record["arms"] if arm["rule"] == "1")
    curves = next(run["curve"] for run in arm["seeds"] if run["seed"] == seed)
    if "train" not in curves:
        return None
    cut = {
        split: [at for at, step in enumerate(curve["step"]) if step <= part * one.record["steps"] + 0.5]
        for split, curve in curves.items()
    }
    aucs = {
        split: [bounded_auc(curves[split]["auc"][at], curves[split]["pairs"]) for at in cut[split]]
        for split in ("train", "val")
    }
    steps = {split: [curves[split]["step"][at] for at in cut[split]] for split in ("train", "val")}
    try:
        found = optimal_k(
            train_auc=aucs["train"], val_auc=aucs["val"], train_steps=steps["train"], steps=steps["val"],
            train_se=[curves["train"]["auc_se"][at] for at in cut["train"]],
            val_se=[curves["val"]["auc_se"][at] for at in cut["val"]], max_k=one.max_k,
        )  # fmt: skip
    except NegwiseError:
        return None
    return found.k if found.determined else None


def _paper_k(one: Analysis) -> int:
    """The paper's K for what this model learns."""
    return next(task.paper_k for task in TASKS.values() if one.model in task.models)


def _is_longer(own: Analysis, one: Analysis) -> bool:
    return _same_data(own, one) and bool(one.record["steps"] > own.record["steps"])


def _is_repeat(own: Analysis, one: Analysis) -> bool:
    more = len(one.record["seeds"]) > len(own.record["seeds"]) and one.record["ks"] == own.record["ks"]
    return _same_data(own, one) and more and bool(one.record["steps"] == own.record["steps"])


def _same_data(own: Analysis, one: Analysis) -> bool:
    """By content; the file may have another name by now."""
    return bool(own.record["data"]["digest"] == one.record["data"]["digest"])


def _difference(one: Analysis, rule: str, other: str, metric: str) -> str:
    if not {rule, other} <= set(one.whole) or rule == other:
        return NOT_RUN
    return with_interval(one.difference(rule, other, metric))
