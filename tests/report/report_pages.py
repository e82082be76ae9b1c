"""A page taken apart by Python's own parser."""

import re
from html.parser import HTMLParser

from negwise.report.write_report import make_figures, read_report_data, render_page


class Page(HTMLParser):
    """Text, elements, attributes and scripts of a page, by Python's own parser."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.words, self.scripts, self.links, self.inside = [], [], {}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside = [tag, dict(attrs).get("id", f"{tag} {len(self.scripts)}")]

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.inside = []

    def handle_data(self, data):
        if not self.inside:
            self.words.append(data)
        elif self.inside[0] == "script":
            self.scripts[self.inside[1]] = self.scripts.get(self.inside[1], "") + data

    @property
    def text(self):
        return re.sub(
            r" (?=[.,;:])", "", " ".join(" ".join(self.words).split())
        )  # none between an element and its stop


def shown(folder):
    """The page of a folder, without the files of its figures."""
    report = read_report_data(folder)
    return Page(render_page(report, make_figures(report)))
