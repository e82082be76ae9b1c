"""The worlds with known truth on the page: their tables and their figure."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.crossed import fold_contrast
from evidence.markdown import table, with_interval
from evidence.truth import Truth
from negwise.report import Figure, Row, Spec, k_axis, quantitative, round_digits, where_equal


def worlds(found: Sequence[Truth]) -> str:
    rows = [
        [
            one.name,
            f"{one.label_auc:.3f}",
            f"{one.read_auc:.3f}",
            f"{one.k_star} ({one.verdict})",
            str(one.k_best),
            f"{one.tests[1]:.4f} ± {one.errors[1]:.4f}",
            f"{one.tests[one.k_star]:.4f} ± {one.errors[one.k_star]:.4f}",
            f"{one.tests[one.k_best]:.4f} ± {one.errors[one.k_best]:.4f}",
            *(with_interval(fold_contrast(each)) for each in (one.gain, one.regret, one.gain_top)),
        ]
        for one in found
    ]
    head = [
        "noise", "label AUC", "as read", "K*", "best K", "AUC at 1", "at K*", "at the best K", "gain of K*, 95% t",
        "regret of K*, 95% t", "gain in nDCG@10, 95% t",
    ]  # fmt: skip
    return table(head, rows)


def assumptions(found: Sequence[Truth]) -> str:
    rows = [
        [
            one.name,
            str(one.k_star),
            str(one.k_gaussian),
            str(one.k_ranks),
            str(one.k_joint),
            str(one.k_best),
            f"{one.gaussian_error:.3f}",
            f"{one.joint_error:.3f}",
            *(f"{one.k_by_lam[lam]:.1f}" for lam in ("0.8", "0.99")),
        ]
        for one in found
    ]
    head = [
        "noise", "K* as read", "labels known", "no Gaussian", "no independence", "best K", "error of P, Gaussian",
        "error of P(AB), independent", "K* at lambda .8", "at .99",
    ]  # fmt: skip
    return table(head, rows)


def worlds_figure(found: Sequence[Truth]) -> Figure:
    """Test AUC against K in every world, less that of K = 1, with K*."""
    rows: list[Row] = []
    for truth in found:
        rows += [
            {
                "of": "auc",
                "world": truth.name,
                "k": k,
                "gain": round_digits(auc - truth.tests[1]),
                "se": round_digits(truth.errors[k]),
            }
            for k, auc in truth.tests.items()
        ]
        rows.append(
            {
                "of": "K*",
                "world": truth.name,
                "k": truth.k_star,
                "gain": round_digits(truth.tests[truth.k_star] - truth.tests[1]),
            }
        )
    names = [truth.name for truth in found]
    color: Spec = {"field": "world", "type": "nominal", "sort": names, "legend": {"title": "noise: shape, level"}}
    place: Spec = {"x": k_axis(), "y": quantitative("gain", "test AUC less that of K = 1"), "color": color}
    panel = {
        "height": 300,
        "layer": [
            {"transform": [where_equal("of", "auc")], "mark": {"type": "line", "point": True}, "encoding": place},
            {
                "transform": [where_equal("of", "K*")],
                "mark": {"type": "point", "shape": "diamond", "size": 160, "strokeWidth": 2.5},
                "encoding": place,
            },
        ],
    }
    caption = "Mean of seeds; open diamonds: K* of the pilot."
    return Figure("clicks", "Worlds with known truth: gain over K = 1", caption, (panel,), rows)
