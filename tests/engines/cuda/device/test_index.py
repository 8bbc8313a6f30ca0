"""Arithmetic of indices: whatever is simplified has the same value, in Python and in C."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.device.index import Index

SIZES = {"i": 5, "j": 7, "k": 4}


@st.composite
def indices(draw):
    """An index, and a function of the variables that gives its value."""
    name = draw(st.sampled_from(sorted(SIZES)))
    index, value = Index.counter(name, SIZES[name]), lambda at: at[name]
    for _ in range(draw(st.integers(1, 7))):
        kind, number = draw(st.sampled_from("+*/%sl")), draw(st.integers(1, 12))
        if kind == "+":
            index, value = index + number, lambda at, f=value, n=number: f(at) + n
        elif kind == "*":
            index, value = index * number, lambda at, f=value, n=number: f(at) * n
        elif kind == "/":
            index, value = index // number, lambda at, f=value, n=number: f(at) // n
        elif kind == "%":
            index, value = index % number, lambda at, f=value, n=number: f(at) % n
        elif kind == "l":
            if index.bounds[0] >= 0:
                index, value = index.limited(number, 20), lambda at, f=value, n=number: min(max(f(at), n), 20)
        else:
            other = draw(st.sampled_from(sorted(SIZES)))
            term = Index.counter(other, SIZES[other]) * number
            index, value = index + term, lambda at, f=value, o=other, n=number: f(at) + at[o] * n
    return index, value


@given(indices())
def test_what_is_simplified_has_the_same_value(case):
    index, value = case
    text = index.text.replace("static_cast<int>", "int").replace("u", "").replace("/", "//")
    code = compile(text, "index", "eval")
    low, high = index.bounds
    for numbers in itertools.product(*(range(size) for size in SIZES.values())):
        at = dict(zip(SIZES, numbers, strict=True))
        wanted = value(at)
        assert eval(code, at) == wanted
        assert low <= wanted <= high


def test_what_may_be_negative_is_divided_as_a_number_that_is_not():
    """C++ divides unsigned numbers: -1 / 3u is not -1."""
    index = Index.counter("i", 5) * -1 + 2
    for divided, wanted in ((index // 3, [0, 0, 0, -1, -1]), (index % 3, [2, 1, 0, 2, 1])):
        assert [atom.of.bounds[0] >= 0 for atom, _ in divided.terms] == [True]
        code = divided.text.replace("u", "").replace("/", "//")
        assert [eval(code, {"i": i}) for i in range(5)] == wanted


def test_what_parts_an_axis_and_joins_it_again_leaves_no_trace():
    flat = Index.counter("i", 60)
    assert flat // 12 * 12 + flat % 12 == flat
    assert flat // 12 % 5 * 12 + flat // 3 % 4 * 3 + flat % 3 == flat


def test_a_run_that_is_rolled_in_whole_runs_stays_one():
    lane = Index.counter("lane", 8)
    rolled = (Index.counter("group", 6) * 8 + lane + 16) % 48
    assert rolled.factor("lane") == 1
    assert rolled.is_multiple(8, "lane")
    apart = (Index.counter("group", 6) * 8 + lane + 3) % 48
    assert apart.factor("lane") is None
