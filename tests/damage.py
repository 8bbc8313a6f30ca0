"""Files that something has happened to."""

import itertools

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


def yaml_bomb(levels=9):
    """YAML whose aliases stand for nine to the power of the levels."""
    names = "abcdefghijklmnop"[: levels + 1]
    lines = [f"{names[0]}: &{names[0]} [{', '.join(['x'] * 9)}]"]
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in itertools.pairwise(names)]
    return "\n".join(lines)
