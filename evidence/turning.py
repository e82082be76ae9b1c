"""The turning point of ANS: when K is at its peak, as a share of the steps."""

from __future__ import annotations

from collections.abc import Sequence

from evidence.analysis import Analysis
from evidence.markdown import table, with_interval
from negwise.report import HEIGHT, Figure, Row, Spec, metric_name, quantitative, round_digits, text_mark, where_equal
from negwise.schedule import AnsK


def points(analysis: Analysis) -> dict[float, str]:
    """Turning points of ANS up to K* that every seed has, with their rules; none where only its own was run."""
    home = f"ans:{analysis.k_star}"
    roles = {arm["rule"]: arm["role"] for arm in analysis.record["arms"]}
    others = {float(rule.split(":")[2]): rule for rule in analysis.whole if roles[rule] == "turning"}
    usual = {AnsK.turning_point: home} if others and home in analysis.whole else {}
    return dict(sorted((usual | others).items()))


def turning(found: Sequence[Analysis]) -> str:
    """Each turning point less fixed K*, and less the paper's turning point, on the test split."""
    rows = []
    for one in found:
        rules = points(one)
        for point, rule in rules.items():
            cells = [with_interval(one.difference(rule, str(one.k_star), metric)) for metric in ("auc", one.top_n)]
            cells += [against_usual(one, rule, metric) for metric in ("auc", one.top_n)]
            rows.append([one.name, str(one.k_star), f"{point:g}", *cells, metric_name(one.top_n)])
    usual = f"{AnsK.turning_point:g}"
    head = [
        "task", "peak, K*", "turning point", "test AUC, less fixed K*", "top n, less fixed K*",
        f"test AUC, less {usual}", f"top n, less {usual}", "top n is",
    ]  # fmt: skip
    return table(head, rows)


def against_usual(one: Analysis, rule: str, metric: str) -> str:
    """What a turning point gains over the paper's; empty for that one itself, and where it was not run."""
    usual = points(one).get(AnsK.turning_point)
    return "" if usual in (None, rule) else with_interval(one.difference(rule, usual, metric))


def turning_figure(found: Sequence[Analysis]) -> Figure:
    """Test quality against the turning point, and fixed K* as a line."""
    rows: list[Row] = []
    panels = []
    for one in found:
        arms = [*(("ans", point, rule) for point, rule in points(one).items()), ("fixed", None, str(one.k_star))]
        for metric in ("auc", one.top_n):
            panels.append(_panel(one.name, metric))
            for what, point, rule in arms:
                mean, error = one.measured[metric][rule].mean, one.measured[metric][rule].error
                ends = {
                    "value": round_digits(mean),
                    "low": round_digits(mean - error),
                    "high": round_digits(mean + error),
                }
                rows.append({"task": one.name, "metric": metric, "of": what, "turning": point, **ends})
    return Figure(
        "turning",
        "The turning point of ANS",
        "Test split, mean of seeds with standard errors. K rises to K* at the turning point and falls to 1 after it; "
        "dashed: K* throughout.",
        tuple(panels),
        rows,
        columns=2,
    )


def _panel(task: str, metric: str) -> Spec:
    axis = {"format": "~%", "tickCount": 6}
    x = quantitative("turning", "turning point, share of the steps", zero=True, axis=axis)
    y = quantitative("value", f"test {metric_name(metric)}")
    here = [where_equal("task", task), where_equal("metric", metric)]
    label = text_mark("fixed K*", align="right", dy=-6)
    label["encoding"] |= {"x": {"value": "width"}, "y": y}
    fixed, ans = ([*here, where_equal("of", kind)] for kind in ("fixed", "ans"))
    ends: Spec = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    return {
        "title": f"{task}: {metric_name(metric)}",
        "height": HEIGHT,
        "layer": [
            {"transform": fixed, "mark": {"type": "rule", "style": "guide"}, "encoding": {"y": y}},
            {"transform": fixed, **label},
            {"transform": ans, "mark": {"type": "rule", "strokeWidth": 2}, "encoding": ends},
            {"transform": ans, "mark": {"type": "line", "point": True}, "encoding": {"x": x, "y": y}},
        ],
    }
