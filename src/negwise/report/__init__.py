"""Pages and figures from records: each figure is declared once, for PNG, SVG, CSV and the page."""
