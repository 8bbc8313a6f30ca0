"""Decode text files, which must be UTF-8; the error names the encoding that a file seems to have."""

from __future__ import annotations

import codecs
import contextlib
import re

__all__ = ["EncodingError", "decode_utf8", "seems_to_hold"]

_MARKS = {  # the longer ones first
    b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16",
}  # fmt: skip
_SAMPLE = 1 << 16  # bytes that are looked at
_CHINESE = re.compile("[\x00-\x7f\u2e80-\u9fff\uff00-\uffef\u201c-\u2026]*")
_WITHIN_A_WORD = re.compile(r"[A-Za-z][^\x00-\x7f](?![^\x00-\x7f])|(?<![^\x00-\x7f])[^\x00-\x7f][A-Za-z]")
"""One Chinese character within a Latin word: two letters with accents, in truth, or one and what follows."""


class EncodingError(ValueError):
    """The text is not UTF-8.

    Attributes:
        line: The line of the first byte that is not.
        encoding: What the text seems to be, by iconv's name.
    """

    def __init__(self, line: int, encoding: str) -> None:
        self.line, self.encoding = line, encoding
        super().__init__(
            f"not UTF-8 in line {line}; it seems to be {encoding}: iconv -f {encoding} -t UTF-8 converts it"
        )


def decode_utf8(data: bytes) -> str:
    """Decode UTF-8, with or without its mark at the beginning.

    Raises:
        EncodingError: it is another encoding. Every second byte of UTF-16 is zero where the text is ASCII, which UTF-8 allows, too.
    """
    zero = _encoding_by_bom(data)
    try:
        text = data.decode("utf-8-sig")
        if not zero:
            return text
        start = 0
    except UnicodeDecodeError as error:
        start = error.start
    raise EncodingError(data.count(b"\n", 0, start) + 1, zero or _guess_encoding(data, start)) from None


def seems_to_hold(data: bytes, word: bytes) -> bool:
    """Whether a text has a word of ASCII, also if it is UTF-16 or UTF-32."""
    return word in data or (b"\0" in data[:_SAMPLE] and word in data.replace(b"\0", b""))


def _encoding_by_bom(data: bytes) -> str:
    """The encoding that a byte order mark, or the pattern of zero bytes, shows; empty if there is neither."""
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            return name
    sample = data[:_SAMPLE]
    zeros = sample[0::2].count(0), sample[1::2].count(0)
    if max(zeros) < max(1, len(sample) // 8):
        return ""
    return "UTF-16LE" if zeros[1] > 2 * zeros[0] else "UTF-16BE" if zeros[0] > 2 * zeros[1] else ""


def _guess_encoding(data: bytes, start: int) -> str:
    """Guess the encoding of a text that is not UTF-8 from a position on."""
    first = data.rfind(b"\n", 0, start) + 1  # no character of two bytes begins within a line's end
    sample, is_complete = data[first : first + _SAMPLE], len(data) - first <= _SAMPLE
    for name in ("GB2312", "GBK"):
        with contextlib.suppress(UnicodeDecodeError):
            text = codecs.getincrementaldecoder(name)().decode(sample, is_complete)
            if _CHINESE.fullmatch(text) and not _WITHIN_A_WORD.search(text):
                return name
    return "WINDOWS-1252"
