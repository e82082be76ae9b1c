"""From numbers to pictures: each figure is declared once and serves PNG, SVG and the interactive page."""
