"""Write reports as web pages: one file each, without external resources, light or dark like the reader's screen."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence

__all__ = ["html_table", "web_page"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --muted: #59636e; --line: #d8dee4; --back: #ffffff; --mark: #fff3c4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --muted: #9198a1; --line: #3d444d; --back: #0d1117; --mark: #4d3f10; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--back); }
body { max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1, h2, p { overflow-wrap: anywhere; }
svg { max-width: 100%; height: auto; }
.scroll { overflow: auto; margin: 1em 0; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid var(--line); padding: .25em .7em; text-align: left; }
td { overflow-wrap: break-word; max-width: 30em; }
tr.marked td { background: var(--mark); }
td.number, th.number { text-align: right; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
"""


def web_page(title: str, parts: Iterable[str], *, style: str = "", script: str = "") -> str:
    """A page as HTML, with a content security policy.

    Its policy lets a browser run the script that is given and nothing else, and load nothing: so it is even where a part has not been
    escaped.
    ``parts`` are HTML, ``title`` is text; ``style`` is CSS besides that of all pages, ``script`` JavaScript of this package.
    """
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:{_script_source(script)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}{style}</style></head>\n<body>\n"
        + "\n".join(parts)
        + (f"\n<script>{script}</script>" if script else "")
        + "\n</body></html>\n"
    )


def html_table(
    head: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "", *, marked: Sequence[bool] = ()
) -> str:
    """A table of texts, which are escaped; cells that are numbers are on the right.

    Args:
        head: Heads of the columns.
        rows: Their cells.
        kind: Classes of the box around it, within which it scrolls.
        marked: Which rows have the class ``marked``, and stand out; empty: none.
    """
    texts = [[str(item) for item in row] for row in rows]
    numbers = [all(_is_number(row[place]) or not row[place] for row in texts) for place in range(len(head))]
    kinds = [" class=number" * (number and bool(texts)) for number in numbers]
    heads = "".join(f"<th{mark}>{html.escape(item)}</th>" for mark, item in zip(kinds, head, strict=True))
    body = "".join(
        f"<tr{' class=marked' * (number < len(marked) and marked[number])}>{''.join(map(_cell, row))}</tr>"
        for number, row in enumerate(texts)
    )
    return f'<div class="{f"scroll {kind}".strip()}"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str) -> str:
    return f"<td{' class=number' * _is_number(text)}>{html.escape(text)}</td>"


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").replace("−", "-").removesuffix("%"))
    except ValueError:
        return False
    return True


def _script_source(script: str) -> str:
    """The digest of a script, for the content security policy."""
    if not script:
        return ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"; script-src 'sha256-{digest}'"
