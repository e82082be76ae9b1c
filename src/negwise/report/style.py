"""Colours and fonts of all figures: on the page in light and dark, in PNG and SVG files in light."""

from __future__ import annotations

from typing import Any

# Distinguishable in greyscale and with the common colour-vision deficiencies (Okabe and Ito).
BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#6b7280",
)
# Five more (Tol), for sweeps and comparisons.
PALETTE = [BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY, "#882255", "#999933", "#332288", "#44AA99", "#661100"]
# The same colours in the same order, lighter, for a dark background.
PALETTE_DARK = ["#4ba9e6", "#f0b849", "#2fc79a", "#e3a3c6", "#a3d8f7", "#ff8f57", "#a3adbb", "#d1609a", "#c9c95c"]
PALETTE_DARK += ["#9a8cff", "#6fd6c6", "#c9806f"]

FILE_FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


def config(*, dark: bool = False, page: bool = False) -> dict[str, Any]:
    """The Vega-Lite config. Figures name styles (``answer``, ``band``, ...), and each theme gives them its colours."""
    ink, soft, line, grid = ("#e6edf5", "#a3adbb", "#526070", "#283341") if dark else _LIGHT_INKS
    palette = PALETTE_DARK if dark else PALETTE
    blue, orange, red, grey = palette[0], palette[1], palette[5], palette[6]
    return {
        "background": "transparent" if page else "white",
        "font": PAGE_FONT if page else FILE_FONT,
        "padding": {"left": 2, "right": 8, "top": 4, "bottom": 2} if page else 12,
        "view": {"stroke": None},
        "axis": {
            "grid": True,
            "gridColor": grid,
            "domainColor": line,
            "tickColor": line,
            "labelColor": soft,
            "titleColor": ink,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "labelOverlap": "greedy",
        },
        "legend": {
            "labelColor": ink,
            "titleColor": ink,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "symbolStrokeWidth": 3,
            "symbolOpacity": 1,
            "labelLimit": 320,
        },
        "title": {
            "anchor": "start",
            "frame": "group",
            "color": ink,
            "fontSize": 13 if page else 14,
            "fontWeight": 600 if page else "bold",
            "subtitleFontSize": 12,
            "subtitleColor": soft,
            "subtitlePadding": 6,
            "offset": 10 if page else 12,
        },
        "header": {"labelFontSize": 12, "title": None, "labelColor": ink},
        "range": {
            "category": palette,
            "ordinal": {"scheme": "viridis", "extent": [0.3, 1.0] if dark else [0.0, 0.88]},
        },
        "text": {"color": ink, "fontSize": 11},
        "rule": {"color": line},
        "style": {
            "answer": {"color": red},
            "answer-text": {"color": red, "fontWeight": "bold", "fontSize": 12},
            "band": {"color": orange, "fillOpacity": 0.2},
            "curve": {"color": blue, "strokeWidth": 2.5},
            "guide": {"color": grey, "strokeDash": [3, 3]},
            "guide-text": {"color": soft, "fontSize": 10.5},
            "seed": {"opacity": 0.45, "size": 34},
            "bar": {"color": blue, "fillOpacity": 0.7},
        },
    }


_LIGHT_INKS = ("#1f2937", "#4b5563", "#9ca3af", "#e5e7eb")


def themes() -> dict[str, Any]:
    """Both configs of the page, by the name of the colour scheme."""
    return {"light": config(page=True), "dark": config(page=True, dark=True)}
