"""Pages load nothing and run nothing that is not theirs; their tables hold text."""

import base64
import hashlib
import re

import pytest

from pytrtplugins.utils.web_page import html_table, web_page


def policy(page):
    """The page's Content-Security-Policy, by directive."""
    (text,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    return {words[0]: words[1:] for words in (part.split() for part in text.split(";"))}


def test_a_page_without_a_script_may_run_none():
    page = web_page("a <b>", ["<p>x</p>"])
    assert policy(page) == {"default-src": ["'none'"], "style-src": ["'unsafe-inline'"], "img-src": ["data:"]}
    assert "<title>a &lt;b&gt;</title>" in page
    assert "<script" not in page


def test_a_page_may_run_its_own_script_alone():
    script = "\nconsole.log('<1>')\n"
    page = web_page("t", [], script=script)
    (found,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(found.encode()).digest()).decode()
    assert found == script
    assert policy(page)["script-src"] == [f"'sha256-{digest}'"]


@pytest.mark.parametrize(
    ("text", "number"), [("3", 1), ("−3", 1), ("1,024.5", 1), ("+1.5%", 1), ("x3", 0), ("", 0), ("–", 0)]
)
def test_numbers_are_on_the_right(text, number):
    assert (f"<td class=number>{text}</td>" in html_table(["a"], [[text]])) == bool(number)


def test_the_head_of_a_column_of_numbers_is_above_them():
    page = html_table(["n", "mixed", "empty"], [(1, "2", ""), ("", "x", "")])
    assert "<th class=number>n</th><th>mixed</th>" in page
    assert "<th>n</th>" in html_table(["n"], [])


def test_cells_are_escaped_and_rows_marked():
    page = html_table(["<h>"], [["<i>"], ["b"]], "kind", marked=[False, True])
    assert '<div class="scroll kind">' in page
    assert "<th>&lt;h&gt;</th>" in page
    assert "<tr><td>&lt;i&gt;</td></tr><tr class=marked><td>b</td></tr>" in page
