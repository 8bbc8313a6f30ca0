"""Split the text of a command into words, without a shell."""

from __future__ import annotations

import re
import shlex

__all__ = ["split_command"]

_ALONE = re.compile(r"(?<!\S)\\(?!\S)|\\\n")
_INSTEAD = "or write a list of words: [sh, -c, ...] for several commands"


def split_command(text: str) -> list[str]:
    """Split a command at blanks, as a shell splits one program and its words.

    Raises:
        ValueError: it has several lines outside of quotes, a backslash that stands alone, or quotes that do not match.
    """
    if _ALONE.search(text):
        raise ValueError(
            f"a backslash stands alone: leave it out, since YAML's `>` joins lines without one, {_INSTEAD}"
        )
    try:
        words, lines = shlex.split(text), _lines(text)
    except ValueError as error:
        raise ValueError(f"{error}: quotes do not match") from error
    if len(lines) > 1:
        raise ValueError(
            f"expected one line, found {len(lines)}: no shell runs them one by one. Write `>` in the place of `|`, which joins lines that"
            f" are neither empty nor indented more, {_INSTEAD}"
        )
    return words


def _lines(text: str) -> list[list[str]]:
    """The words of each line that has some; line ends within quotes are part of a word."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    lines: list[list[str]] = [[]]
    for word in lexer:
        if set(word) == {"\n"}:
            lines.append([])
        else:
            lines[-1].append(word)
    return [line for line in lines if line]
