"""One self-contained HTML page from a template. Everything is inline, and everything from data is escaped.

A template extends ``base.html``. In it ``{{ value }}`` is escaped, ``{{ value | json }}`` is a JavaScript value that
cannot close its script element, and ``charts=True`` brings the charting library with it (0.9 MB).
"""

from __future__ import annotations

import functools
import html
import json
import re
from typing import Any

from negwise.errors import InputError, require
from negwise.report.style import themes


def render_template(template: str, *, charts: bool = True, **context: Any) -> str:
    """The page from ``template``, a file in ``templates/``, and ``context``."""
    bundle = vega_bundle() if charts else ""
    return _environment().get_template(template).render(bundle=bundle, themes=themes(), **context)


def script_json(value: Any) -> str:
    """``value`` as JSON inside a script element. It has no ``<``, so no text in it can end the element."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InputError(f"the page has a number that JSON cannot hold ({error})") from error
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the package that also draws the PNG files."""
    text = require("vl_convert", extra="plot").javascript_bundle()
    # In a script element only these two are read as HTML. In JavaScript they mean the same with the backslash.
    return text.replace("</script", "<\\/script").replace("<!--", "\\u003c!--")


def _mark_commands(text: str) -> str:
    """``text`` escaped, with what one types, as ``--out``, ``--budget 3m`` or ``negwise sweep --k 1,4``, as code.

    ``K = 4`` stays on one line.
    """
    marked = _COMMAND.sub(lambda found: f"<code>{found[0]}</code>", html.escape(text))
    return re.sub(r"\bK = (?=\d)", "K&nbsp;=&nbsp;", marked)


_VALUE = r"(?: (?:\d\w*|all|metric|online)(?:[,:]\d[\w.]*)*)"
_COMMAND = re.compile(rf"negwise [a-z]+(?: --[a-z-]+{_VALUE})*|--[a-z][a-z-]*{_VALUE}?")


@functools.cache
def _environment() -> Any:
    jinja2 = require("jinja2", extra="plot")
    markup = require("markupsafe", extra="plot").Markup
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("negwise.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = lambda value: markup(script_json(value))
    environment.filters["commands"] = lambda text: markup(_mark_commands(str(text)))
    return environment
