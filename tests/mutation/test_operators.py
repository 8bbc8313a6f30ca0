"""What each operator makes of a few lines."""

import ast
from textwrap import dedent

import pytest

from tests.mutation.operators import OPERATORS, is_different, mutants

EXAMPLES = {
    "boundary": (
        "a = b <= c < d",
        ["a = b < c < d", "a = b <= c <= d"],
    ),
    "off by one": (
        """\
        a = b[0], b[-1], b[2:k], range(1, k), c + 1
        d = len(b) > 2
        """,
        [
            "a = b[1], b[-1], b[2:k], range(1, k), c + 1",
            "a = b[0], b[-2], b[2:k], range(1, k), c + 1",
            "a = b[0], b[1], b[2:k], range(1, k), c + 1",
            "a = b[0], b[-1], b[1:k], range(1, k), c + 1",
            "a = b[0], b[-1], b[2:k - 1], range(1, k), c + 1",
            "a = b[0], b[-1], b[2:k], range(1, k - 1), c + 1",
            "a = b[0], b[-1], b[2:k], range(1, k), c",
            "d = len(b) > 3",
        ],
    ),
    "swapped operands": (
        "a = x - (y + 1) * z // t, 'ß %s' % a, np.abs(x - y)",
        [
            "a = ((y + 1) * z // t) - x, 'ß %s' % a, np.abs(x - y)",
            "a = x - (t // ((y + 1) * z)), 'ß %s' % a, np.abs(x - y)",
        ],
    ),
    "swapped arguments": (
        "f(self.a, b, 1), isinstance(a, B), np.add(a, b), f(a, a)",
        ["f(b, self.a, 1), isinstance(a, B), np.add(a, b), f(a, a)"],
    ),
    "other extreme": ("a = min(b).max()", ["a = max(b).max()", "a = min(b).min()"]),
    "dropped key": (
        """\
        def f(x):
            key = a, b
            seen.add((a, b, c))
            same = (a, b) == (c, d)
            x = y[a, b]
            z: tuple[int, str]
            f(a, (b, c))
        NAMES = a, b
        """,
        [
            "key = b,",
            "key = a,",
            "seen.add((b, c))",
            "seen.add((a, c))",
            "seen.add((a, b))",
            "same = (b,) == (d,)",
            "same = (a,) == (c,)",
            "x = y[b,]",
            "x = y[a,]",
        ],
    ),
    "unit factor": (
        "a = 1000 * b + c / 1e6 + 1000, 1 << 20",
        [
            "a = 1024 * b + c / 1e6 + 1000, 1 << 20",
            "a = 1000 * b + c / 1e3 + 1000, 1 << 20",
            "a = 1000 * b + c / 1e6 + 1000, 1 << 10",
        ],
    ),
    "lost statement": (
        """\
        self._changed.notify_all()
        a = f()
        """,
        ["pass"],
    ),
    "lost lock": (
        """\
        with self._lock:
            a = 1
        with open(name):
            b = 1
        """,
        ["if True:"],
    ),
    "lost row": (
        """\
        TABLE = {
            "a": f,  # why
            "b": g,
            **others,
            "c": h
        }
        NAMES = ("a", "b", "c")
        ONE, TWO, THREE = 1, 2, 3
        def f(x): return x in ("a", "b")
        """,
        [
            "# why",
            "",
            'NAMES = ("b", "c")',
            'NAMES = ("a", "c")',
            'def f(x): return x in ("b",)',
            'def f(x): return x in ("a",)',
        ],
    ),
    "changed default": (
        """\
        def f(a: float = 0.5, *, b: bool = True, c=None): return g(keep=False), zip(a, strict=True), d.get("e", 1)
        class A:
            size: int = 2
        """,
        [
            'def f(a: float = 0.25, *, b: bool = True, c=None): return g(keep=False), zip(a, strict=True), d.get("e", 1)',
            'def f(a: float = 0.5, *, b: bool = False, c=None): return g(keep=False), zip(a, strict=True), d.get("e", 1)',
            'def f(a: float = 0.5, *, b: bool = True, c=None): return g(keep=True), zip(a, strict=True), d.get("e", 1)',
            'def f(a: float = 0.5, *, b: bool = True, c=None): return g(keep=False), zip(a, strict=True), d.get("e", 2)',
            "size: int = 3",
        ],
    ),
    "condition": (
        """\
        a = b and not c or d
        e = [x for x in y if x]
        while a:
            if a: break
        """,
        [
            "a = d",
            "a = (b and not c)",
            "a = (not c) or d",
            "a = b or d",
            "a = b and c or d",
            "e = [x for x in y if True]",
            "if False: break",
        ],
    ),
    "swapped constants": (
        """\
        LUMA = np.array([0.299, 0.587])
        NAMES = "a", "b"
        print(NAMES[0])
        KINDS = ("c", "d")
        if x in KINDS or x in ("e", "f") or x.endswith(KINDS): pass
        TABLE = dict.fromkeys(("g", "h"), 1)
        SET = {*("i", "j"), "k"}
        OTHER = frozenset([*("i", "j"), "k"])
        """,
        ["LUMA = np.array([0.587, 0.299])", 'NAMES = "b", "a"'],
    ),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_makes_its_errors_and_no_others(operator):
    text, expected = EXAMPLES[operator]
    data = dedent(text).encode()
    made = [mutant for mutant in mutants("x.py", data) if mutant.operator == operator]
    assert sorted(mutant.change(data).partition(" → ")[2] for mutant in made) == sorted(expected)
    assert all(is_different(mutant, data) for mutant in made)


def test_what_changes_nothing_has_no_errors():
    plain = '''
    """1 < 2"""
    from __future__ import annotations
    if TYPE_CHECKING:
        f(a, b)
    __all__ = ["a", "b", "c"]
    a: b[0] = 1
    Dims = tuple["a", "b"]
    Numbers = np.ndarray[Any, np.dtype[float]]
    @wrap(slots=False, other=True)
    def f(a: g(x=True)) -> b[1]:
        """Text."""
        raise ValueError(f"{a + 1}")
    os.killpg(a - 1, b)
    '''
    assert [mutant.text for mutant in mutants("x.py", dedent(plain).encode())] == ["pass"]  # without killpg


def test_an_error_has_its_line_and_leaves_the_rest():
    data = "# ä\nä = 1\nx = (\n    ä < 2\n)\n".encode()
    (mutant,) = mutants("x.py", data)
    assert (mutant.line, mutant.operator, mutant.change(data)) == (4, "boundary", "ä < 2 → ä <= 2")
    assert mutant.apply(data) == data.replace(b"<", b"<=")


def test_what_cannot_be_read_or_means_the_same_is_no_error():
    data = b"x = a[1:2]\n"
    mutant = mutants("x.py", data)[0]
    assert is_different(mutant, data)
    same = type(mutant)("x.py", 1, "", mutant.begin, mutant.end, "(1)")
    broken = type(mutant)("x.py", 1, "", mutant.begin, mutant.end, "(")
    assert not is_different(same, data)
    assert not is_different(broken, data)
    assert ast.unparse(ast.parse(mutant.apply(data))) == "x = a[0:2]"
