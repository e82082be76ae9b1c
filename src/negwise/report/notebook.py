"""The answer of a job as a small piece of HTML, for notebooks. Everything from data is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from negwise.report.answer import Answer
from negwise.report.score_table import ScoreTable, ShareTable


def answer_html(answer: Answer) -> str:
    """The headline, what comes first, a row for each number, the tables, and the lines that load the model."""
    parts = [f"<strong>{escape(answer.headline)}</strong>"]
    parts += [f"<div><em>{escape(notice)}</em></div>" for notice in answer.notices]
    stats = [(stat.label, f"{stat.value} {stat.error}".strip(), stat.note) for stat in answer.stats]
    parts.append(_table((), stats))
    if answer.scores is not None:
        parts += [_of(answer.scores), f"<div><small>{escape(answer.scores.note)}</small></div>"]
    if answer.advice is not None:
        parts.append(f"<div>{escape(answer.advice)}</div>")
    if answer.shares is not None:
        note = f"<div><small>{escape(answer.shares.note)}</small></div>"
        parts.append(f"<details><summary>What each K brings and costs</summary>{_of(answer.shares)}{note}</details>")
    if answer.load is not None:
        parts.append(f"<pre>{escape(answer.load)}</pre>")
    return f"<div>{''.join(parts)}</div>"


def _of(table: ScoreTable | ShareTable) -> str:
    return _table(table.columns, table.rows)


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
