"""Pages and figures from records: each figure is declared once, for PNG, SVG, CSV and the page.

::

    panel = {"mark": "line", "encoding": {"x": k_axis(), "y": quantitative("auc", metric_name("auc"))}}
    Figure("auc", "Quality against K", "One run for each K.", (panel,), [{"k": 1, "auc": 0.71}, ...]).save_all(folder)
"""

from __future__ import annotations

from negwise.report.figure import Figure, Row, Rows, Spec, Value, round_digits
from negwise.report.formatting import metric_name
from negwise.report.vega_lite import HEIGHT, k_axis, quantitative, step_axis, text_mark, tooltip, where_equal

__all__ = [
    "HEIGHT",
    "Figure",
    "Row",
    "Rows",
    "Spec",
    "Value",
    "k_axis",
    "metric_name",
    "quantitative",
    "round_digits",
    "step_axis",
    "text_mark",
    "tooltip",
    "where_equal",
]
