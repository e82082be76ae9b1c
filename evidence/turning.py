"""The turning point of ANS: when K is at its peak, as a share of the steps."""

from __future__ import annotations

from collections.abc import Sequence

from evidence.analysis import Analysis
from evidence.markdown import table, with_interval
from negwise.report import metric_name
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
        for point, rule in points(one).items():
            cells = [with_interval(one.difference(rule, str(one.k_star), metric)) for metric in ("auc", one.top_n)]
            rows.append([one.name, f"{point:g}", *cells, against_usual(one, rule, "auc"), metric_name(one.top_n)])
    usual = f"{AnsK.turning_point:g}"
    head = ["record", "turning point", "AUC, less fixed K\\*", "top n, less it", f"AUC, less {usual}", "top n is"]
    return table(head, rows)


def against_usual(one: Analysis, rule: str, metric: str) -> str:
    """What a turning point gains over the paper's; empty for that one itself, and where it was not run."""
    usual = points(one).get(AnsK.turning_point)
    return "" if usual in (None, rule) else with_interval(one.difference(rule, usual, metric))
