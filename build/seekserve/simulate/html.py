"""A self-contained page of text, tables and charts; what a browser needs is in it, and it asks for nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["page", "paragraph", "section", "table"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; }
th, td { padding: 3px 10px; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, .words th, .words td { text-align: left; }
tr.marked td { font-weight: 600; background: #fbe6d4; }
svg { width: 100%; height: auto; margin: .5rem 0; }
svg text { font: 12px system-ui, sans-serif; fill: #333; }
svg .title { font-weight: 600; font-size: 14px; }
svg .grid { stroke: #e4e4e4; }
svg .level { stroke: #888; stroke-dasharray: 5 3; }
.answer { font-size: 17px; border-left: 4px solid #0072b2; padding-left: 1rem; }
"""


def page(title: str, answer: Sequence[str], sections: Sequence[str]) -> str:
    """`answer`: what it comes to, in sentences, before anything else. `sections`: HTML."""
    first = "".join(f"<p>{escape(sentence)}</p>" for sentence in answer)
    head = f'<head><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style></head>'
    body = f'<h1>{escape(title)}</h1><div class="answer">{first}</div>' + "\n".join(sections)
    return f'<!doctype html>\n<html lang="en">{head}\n<body>{body}</body></html>\n'


def section(title: str, *parts: str) -> str:
    return "\n".join([f"<h2>{escape(title)}</h2>", *parts])


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, marked: Sequence[int] = (), is_words: bool = False
) -> str:
    """`marked`: numbers of rows that stand out. `is_words`: cells are read, not compared, so they begin at the left."""
    first = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr{' class=marked' if n in marked else ''}>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for n, row in enumerate(rows)
    )
    kind = " class=words" if is_words else ""
    return f"<table{kind}><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table>"
