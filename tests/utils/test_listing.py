"""Counts and lists in sentences."""

from pytrtplugins.utils.listing import count_text, first_lines, first_names, first_texts, some_names


def test_one_has_no_s_and_thousands_have_commas():
    assert [count_text(number, "layer") for number in (0, 1, 2, 1234)] == [
        "0 layers",
        "1 layer",
        "2 layers",
        "1,234 layers",
    ]


def test_names_beyond_the_most_are_counted():
    assert first_names(["a", "b"], 2) == "'a', 'b'"
    assert first_names([str(number) for number in range(1003)], 2) == "'0', '1' and 1,001 more"
    assert first_names([]) == ""
    assert first_names([*"abcdefghijkl"]).endswith("'i', 'j' and 2 more")


def test_texts_are_joined_as_the_sentence_wants_it():
    assert first_texts(["a", "b"], 2) == "a, b"
    assert first_texts(["a", "b", "c"], 2, "; ", "; and ") == "a; b; and 1 more"


def test_some_names_are_short():
    assert some_names([]) == "none"
    assert some_names(["a", "b", "c", "d"]) == "'a', 'b', 'c' (and 1 more)"
    assert len(some_names(["n" * 10_000])) < 200


def test_lines_beyond_the_most_are_counted():
    assert list(first_lines(["a", "b"], 2)) == ["  a", "  b"]
    assert list(first_lines([*"abcdefghijkl"]))[9:] == ["  j", "  and 2 more, which --json lists"]
    assert list(first_lines(["a", "b", "c"], 1)) == ["  a", "  and 2 more, which --json lists"]
