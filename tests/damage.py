"""Files that something has happened to."""

from __future__ import annotations

from hypothesis import strategies as st


def damaged(data, whole):
    """Bytes with one changed, one put in, or all cut off from one on, as hypothesis's ``data`` draws it."""
    position = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    return {
        "flip": whole[:position] + bytes([whole[position] ^ data.draw(st.integers(1, 255))]) + whole[position + 1 :],
        "cut": whole[:position],
        "insert": whole[:position] + b"\0" + whole[position:],
    }[kind]
