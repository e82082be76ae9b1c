"""Records beside those of the tasks: other models, the paper's settings, longer training, more seeds, other data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evidence.analysis import Analysis
from evidence.bootstrap import Measured
from evidence.markdown import signed, small, span, table, with_error, with_interval
from evidence.tasks import LABELS, TASKS
from negwise.report import metric_name

Analyses = Mapping[str, Analysis]
NOT_RUN = "not run"


def other_models(found: Analyses) -> list[Analysis]:
    """Records of other models, each task's own model before them where it has a record."""
    return [
        one
        for task in dict.fromkeys(one.of for one in found.values() if one.variant == "model")
        for one in found.values()
        if one.of == task and (one.name == task or one.variant == "model")
    ]


def published(found: Analyses) -> list[tuple[Analysis | None, Analysis]]:
    """Records with the paper's settings, each after the one of the same task and model with tuned ones."""
    return [(_plain(found, one), one) for one in found.values() if one.variant == "paper"]


def longer(found: Analyses) -> list[tuple[Analysis, Analysis]]:
    """Records of a task that differ by more steps on the same data, each after the task's own or its largest repeat."""
    most = {own.name: own for own in found.values() if own.name == own.of}
    most |= {own.name: more for own, more in sorted(repeated(found), key=lambda pair: len(pair[1].record["seeds"]))}
    return [
        (most[one.of], one)
        for one in found.values()
        if one.of in most and not one.variant and _is_longer(found[one.of], one)
    ]


def repeated(found: Analyses) -> list[tuple[Analysis, Analysis]]:
    """Records of a task that differ by more seeds on the same data, each after the task's own."""
    return [
        (own, one)
        for own in found.values()
        for one in found.values()
        if own.name == own.of == one.of and not one.variant and _is_repeat(own, one)
    ]


def again(found: Analyses) -> list[Analysis]:
    """Tasks that were run again with more seeds, each before its repeats; and tasks beside the primary ones."""
    repeats = repeated(found)
    return [
        each
        for one in found.values()
        if one.name == one.of and (one.name not in TASKS or any(own is one for own, _ in repeats))
        for each in (one, *(more for own, more in repeats if own is one))
    ]


def new_seeds(one: Analysis, found: Analyses) -> list[int]:
    """The seeds whose runs no other record has: of the same task on the same data a seed may give the same run."""
    others = [other for other in found.values() if other is not one and other.of == one.of and _same_data(other, one)]
    known = {seed for other in others for seed, test in _first(other).items() if _first(one).get(seed) == test}
    return [seed for seed in one.record["seeds"] if seed not in known]


def contrasts(found: Sequence[Analysis], every: Analyses) -> str:
    """K* against K = 1, and ANS against fixed K*, as in the primary contrasts, on both metrics.

    A record that shares runs with a smaller one is there once more, with the seeds that it has to itself.
    """
    rows = []
    for each in found:
        new = new_seeds(each, every)
        rows += _contrast_rows(each, each.name)
        if 1 < len(new) < len(each.record["seeds"]):
            rows += _contrast_rows(each.only(new), f"{each.name}, new seeds")
    head = ["record", "seeds", "contrast", "test", "difference", "95%, bootstrap", "95%, t over seeds or folds", "p"]
    return table(head, rows)


def _contrast_rows(one: Analysis, name: str) -> list[list[str]]:
    rows, star, seeds = [], str(one.k_star), str(len(one.record["seeds"]))
    for rule, other in ((star, "1"), (f"ans:{star}", star)):
        for metric in ("auc", one.top_n):
            if {rule, other} <= set(one.whole) and rule != other:
                each = one.difference(rule, other, metric)
                said = [signed(each.mean), span(each.interval), span(each.student), small(each.p)]
                rows.append([name, seeds, f"{rule} against {other}", metric_name(metric), *said])
    return rows


def _first(one: Analysis) -> dict[int, object]:
    """What each seed of K = 1 scored on the test split, to every digit recorded."""
    return {run["seed"]: run["test"] for arm in one.record["arms"] if arm["rule"] == "1" for run in arm["seeds"]}


def repeats(found: Sequence[tuple[Analysis, Analysis]]) -> str:
    """Every K held throughout, in a task's own record and in the one with more seeds; empty where one lacks it."""
    rows = []
    for own, more in found:
        seeds = ", ".join(str(len(one.record["seeds"])) for one in (own, more))
        for k in sorted({*own.fixed, *more.fixed}):
            each = [(one, metric) for metric in ("auc", own.top_n) for one in (own, more)]
            cells = [with_error(one.measured[metric][str(k)]) if k in one.fixed else "" for one, metric in each]
            rows.append([own.name, str(k), seeds, *cells, metric_name(own.top_n)])
    head = [
        "task", "K", "seeds", "test AUC, fewer seeds", "test AUC, more seeds",
        "top n, fewer seeds", "top n, more seeds", "top n is",
    ]  # fmt: skip
    return table(head, rows)


def with_hundred(found: Analyses) -> list[Analysis]:
    """Records in which K = 100 was trained beside another K*."""
    return [one for one in found.values() if 100 in one.fixed and one.k_star != 100]


def hundred(found: Sequence[Analysis]) -> str:
    """K = 100, which needs no pilot, less K*."""
    rows = []
    for one in found:
        differences = [one.difference("100", str(one.k_star), metric) for metric in ("auc", one.top_n)]
        seeds, star = str(len(one.record["seeds"])), str(one.k_star)
        cells = [with_interval(each) for each in differences]
        rows.append([one.name, LABELS[one.model], seeds, star, *cells, metric_name(one.top_n)])
    head = ["record", "model", "seeds", "K*", "test AUC, 100 less K*", "top n, 100 less K*", "top n is"]
    return table(head, rows)


def models(found: Sequence[Analysis]) -> str:
    """Four arms of every model, with Student's t intervals over seeds."""
    rows = [_model_row(one, metric) for one in found for metric in ("auc", one.top_n)]
    head = ["task", "model", "seeds", "test", "K*", "K = 1", "fixed K*", "ANS", "WarmK", "K* less K = 1", "ANS less K*"]
    return table(head, rows)


def paper(found: Sequence[tuple[Analysis | None, Analysis]]) -> str:
    """The paper's settings beside tuned ones."""
    named = [each for tuned, printed in found for each in (("tuned", tuned), ("the paper's", printed))]
    rows = [_paper_row(one, name, metric) for name, one in named if one is not None for metric in ("auc", one.top_n)]
    head = ["task", "settings", "steps", "test", "K = 1", "K*", "paper's K, or nearest", "ANS to K*", "WarmK to K*"]
    return table(head, rows)


def long(found: Sequence[tuple[Analysis, Analysis]]) -> str:
    """The K of a longer sweep, each beside the same K in the shorter one, less K = 1 of the same length."""
    rows = []
    for own, more in found:
        steps = " and ".join(f"{one.record['steps']:,}" for one in (own, more))
        for k in more.fixed:
            name = f"**{k}**" if k == more.k_star else str(k)
            cells = [_error(one, str(k), metric) for metric in ("auc", own.top_n) for one in (own, more)]
            gains = [
                with_interval(one.difference(str(k), "1")) if {str(k), "1"} <= set(one.whole) and k > 1 else ""
                for one in (own, more)
            ]
            rows.append([own.of, name, steps, *cells[:2], *gains, *cells[2:], metric_name(own.top_n)])
    head = [
        "task", "K", "steps", "test AUC, short", "test AUC, long", "less K = 1, short", "less K = 1, long",
        "top n, short", "top n, long", "top n is",
    ]  # fmt: skip
    return table(head, rows)


def _model_row(one: Analysis, metric: str) -> list[str]:
    star = str(one.k_star)
    return [
        one.of,
        LABELS[one.model],
        str(len(one.record["seeds"])),
        metric_name(metric),
        star,
        *(_level(one, rule, metric) for rule in ("1", star, f"ans:{star}", f"warm:{star}")),
        _difference(one, star, "1", metric),
        _difference(one, f"ans:{star}", star, metric),
    ]


def _paper_row(one: Analysis, settings: str, metric: str) -> list[str]:
    star, theirs = str(one.k_star), str(one.nearest(_paper_k(one)))
    return [
        one.of,
        settings,
        f"{one.record['steps']:,} of {one.record['settings']['batch_size']}",
        metric_name(metric),
        _error(one, "1", metric),
        f"{_error(one, star, metric)} ({star})",
        f"{_error(one, theirs, metric)} ({theirs})",
        *(_error(one, f"{kind}:{star}", metric) for kind in ("ans", "warm")),
    ]


def _plain(found: Analyses, one: Analysis) -> Analysis | None:
    """The record of the same task and model with tuned settings, under the name that it has by itself."""
    other = found.get(one.of), found.get(f"{one.of}-{one.model}")
    return next((each for each in other if each is not None and each.model == one.model), None)


def _paper_k(one: Analysis) -> int:
    """The paper's K for what this model learns."""
    return next(task.paper_k for task in TASKS.values() if one.model in task.models)


def _is_longer(own: Analysis, one: Analysis) -> bool:
    return _same_data(own, one) and bool(one.record["steps"] > own.record["steps"])


def _is_repeat(own: Analysis, one: Analysis) -> bool:
    more = len(one.record["seeds"]) > len(own.record["seeds"])
    return _same_data(own, one) and more and bool(one.record["steps"] == own.record["steps"])


def _same_data(own: Analysis, one: Analysis) -> bool:
    """By content; the file may have another name by now."""
    return bool(own.record["data"]["digest"] == one.record["data"]["digest"])


def _level(one: Analysis, rule: str, metric: str) -> str:
    if rule not in one.whole:
        return NOT_RUN
    found = one.measured[metric][rule]
    return f"{found.mean:.4f} ({found.student[0]:.4f}..{found.student[1]:.4f})"


def _difference(one: Analysis, rule: str, other: str, metric: str) -> str:
    if not {rule, other} <= set(one.whole) or rule == other:
        return NOT_RUN
    found: Measured = one.difference(rule, other, metric)
    return f"{signed(found.mean)} ({span(found.student)})"


def _error(one: Analysis, rule: str, metric: str) -> str:
    return with_error(one.measured[metric][rule]) if rule in one.whole else NOT_RUN
