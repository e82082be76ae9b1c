"""The paper's claims, one row each: does it follow from the formula, and was it seen here, under which metric?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evidence.analysis import Analysis
from evidence.markdown import signed, table
from evidence.turning import against_usual, points
from negwise import auc, effectiveness, optimal_k, separation
from negwise.report import metric_name
from negwise.schedule import AnsK


def claims(found: Mapping[str, Analysis], turned: Sequence[Analysis]) -> str:
    """Numbers of the formula are computed here, those of the data come from the tasks' records.

    ``turned`` are records with several turning points.
    """
    helped = _helped(found)
    rows = [
        ["K = 4 at AUC .75 (news)", _simulated(0.75, 1.0), _near(found["news"])],
        ["K = 20 at AUC .95 (items)", _simulated(0.95, 2.4), _near(found["items"])],
        ["K = 180 at AUC .998, mu = 4.5 (matching)", _simulated(0.998, 4.5), _near(found["matching"])],
        ["K\\* beats K = 1", "it is what v is for", f"{_beaten(found)}: {_gains(found)}"],
        [
            "ANS beats a fixed K",
            "no: the best K of a stage rises over most of training, and ANS falls",
            f"{'In ' + ', '.join(helped) if helped else 'No'}: {_schedules(found)}",
        ],
        ["10% is the best turning point", "no: the formula has no turning point", _turnings(turned)],
        [
            "the best K is near 1 at both ends of training",
            f"no: for mu = 2.4 it is {_stage(0.0)} at the start, {_stage(1.2)} half-way, and undetermined at the end",
            "not measured by itself; ending with K = 1, as ANS does, "
            + (f"helped in {', '.join(helped)}" if helped else "did not help"),
        ],
        ["quality rises, then falls with K", "v does", f"It rises, then {_fallen(found)}: {_ends(found)}"],
    ]
    return table(["the paper", "follows from the formula?", "seen here?"], rows)


def _simulated(printed: float, mu: float) -> str:
    """K* on the paper's simulated curve, at the AUC that it prints and at the separation that it prints."""
    at_auc, at_mu = optimal_k(train_auc=printed).k, optimal_k(train_auc=float(auc(mu))).k
    exact = float(separation(printed))
    return (
        f"AUC {printed:g} is mu = {exact:.2f} and gives {at_auc:,.1f}; mu = {mu:g} is AUC {float(auc(mu)):.4f} "
        f"and gives {at_mu:,.1f}"
    )


def _near(one: Analysis) -> str:
    label = float(auc(one.record["estimate"]["label_separation"]))
    top = metric_name(one.top_n)
    star, best = (
        f"AUC {one.measured['auc'][str(k)].mean:.4f}, {top} {one.measured[one.top_n][str(k)].mean:.4f}"
        for k in (one.k_star, one.k_best)
    )
    return f"Training AUC {label:.3f} gave K\\* = {one.k_star}: {star}; validation-best K = {one.k_best}: {best}"


def _beaten(found: Mapping[str, Analysis]) -> str:
    """Whether K* is clearly better than K = 1 on both metrics, everywhere."""
    pairs = [(one, metric) for one in found.values() for metric in ("auc", one.top_n)]
    clear = [one.difference(str(one.k_star), "1", metric).interval[0] > 0 for one, metric in pairs]
    return "Yes, on AUC and top n" if all(clear) else "Not clearly everywhere, AUC and top n"


def _helped(found: Mapping[str, Analysis]) -> list[str]:
    """Tasks in which ANS was clearly better than fixed K* on either metric."""
    return [
        name
        for name, one in found.items()
        if _has_ans(one)
        and any(one.difference(f"ans:{one.k_star}", str(one.k_star), m).interval[0] > 0 for m in ("auc", one.top_n))
    ]


def _has_ans(one: Analysis) -> bool:
    """There is none up to 1."""
    return f"ans:{one.k_star}" in one.whole


def _fallen(found: Mapping[str, Analysis]) -> str:
    lower = [name for name, one in found.items() if one.regret(one.fixed[-1]).interval[0] > 0]
    return f"falls in {', '.join(lower)}" if lower else "is flat"


def _gains(found: Mapping[str, Analysis]) -> str:
    return "; ".join(
        f"{name} {signed(one.difference(str(one.k_star), '1').mean)} and "
        f"{signed(one.difference(str(one.k_star), '1', one.top_n).mean)}"
        for name, one in found.items()
    )


def _schedules(found: Mapping[str, Analysis]) -> str:
    return "; ".join(
        f"{name} {signed(one.difference(f'ans:{one.k_star}', str(one.k_star)).mean)} AUC and "
        f"{signed(one.difference(f'ans:{one.k_star}', str(one.k_star), one.top_n).mean)} {metric_name(one.top_n)}"
        for name, one in found.items()
        if _has_ans(one)
    )


def _turnings(turned: Sequence[Analysis]) -> str:
    """The turning point with the best test AUC, and what it gains over the paper's: chosen on test, so too much."""
    parts = []
    for one in turned:
        rules = points(one)
        if AnsK.turning_point not in rules:
            continue
        best = max(rules, key=lambda point: one.measured["auc"][rules[point]].mean)
        if best == AnsK.turning_point:
            parts.append(f"{one.name} is best at {best:g}")
            continue
        top = one.difference(rules[best], rules[AnsK.turning_point], one.top_n)
        said = f"{against_usual(one, rules[best], 'auc')} AUC and {signed(top.mean)} {metric_name(one.top_n)}"
        parts.append(f"{one.name} is best at {best:g}: {said} against {AnsK.turning_point:g}")
    return "On test AUC " + "; ".join(parts) if parts else "not run"


def _ends(found: Mapping[str, Analysis]) -> str:
    """The largest K against the validation-best one."""
    parts = []
    for name, one in found.items():
        largest = one.fixed[-1]
        low, high = one.regret(largest).interval
        parts.append(
            f"{name} at K = {largest} {signed(-one.regret(largest).mean)} ({signed(-high)}..{signed(-low)}) AUC"
        )
    return "less the validation-best K, " + "; ".join(parts)


def _stage(model: float) -> str:
    """The best K of one moment for labels with separation 2.4 and a model with this one."""
    ks = np.geomspace(1, 1e3, 6001)  # each a thousandth above the last
    return f"{ks[np.argmax(effectiveness(2.4, model, ks))]:.1f}"
