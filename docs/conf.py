"""The documentation site. Formulas become MathML at build time: no script, no network, any current browser."""

from docutils import nodes
from latex2mathml.converter import convert

import negwise

project = "negwise"
author = "The negwise developers"
copyright = "2026, the negwise developers"  # noqa: A001 (the name that Sphinx asks for)
version = release = negwise.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "negwise"
html_static_path = ["style"]
html_css_files = ["tables.css"]
html_math_renderer = "mathml"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
nitpicky = False


def _inline(self, node: nodes.math) -> None:
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(self, node: nodes.math_block) -> None:
    # Wide formulas scroll sideways on a phone; the line's own height must not bring a second bar.
    style = "overflow-x: auto; overflow-y: hidden; padding: 0.3em 0"
    self.body.append(f'<div style="{style}">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app) -> None:
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
