"""The numbers in nested values, by their names."""

from pytrtplugins.utils.named_numbers import named_numbers


def test_names_are_keys_names_and_places():
    value = {
        "map": {"50": 0.5, "all": 1, "curve": [0.1, 0.2]},
        "classes": [{"name": "cat", "ap": 0.25}, {"ap": 0.75}],
        "ok": True,
        "text": "3",
        "none": None,
    }
    assert dict(named_numbers(value)) == {
        "map.50": 0.5, "map.all": 1.0, "classes.cat.ap": 0.25, "classes.1.ap": 0.75, "ok": 1.0
    }  # fmt: skip


def test_a_number_alone_is_the_value():
    assert list(named_numbers(2)) == [("value", 2.0)]
    assert list(named_numbers([2, 3])) == []
