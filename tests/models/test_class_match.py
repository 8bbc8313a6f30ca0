"""Names of classes are matched exactly, else without upper and lower case, else refused."""

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.models.class_match import ClassMatch, match_classes


@pytest.mark.parametrize(
    ("detector", "data", "class_map", "expected"),
    [
        (("cat", "dog"), ("dog", "cat"), {}, ClassMatch(("dog", "cat"), {0: 1, 1: 0}, {0: 0, 1: 1}, ())),
        (("Cat",), ("cat", "dog"), {}, ClassMatch(("cat",), {0: 0}, {0: 0}, ("dog",))),
        # the exact name wins, wherever the other stands
        (("Cat", "cat"), ("cat",), {}, ClassMatch(("cat",), {1: 0}, {0: 0}, ())),
        (("cat", "Cat"), ("cat",), {}, ClassMatch(("cat",), {0: 0}, {0: 0}, ())),
        (("cat",), ("Cat", "cat"), {}, ClassMatch(("cat",), {0: 0}, {1: 0}, ("Cat",))),
        (("cat",), ("cat", "Cat"), {}, ClassMatch(("cat",), {0: 0}, {0: 0}, ("Cat",))),
        (("CAT", "cat"), ("cat", "Cat"), {}, ClassMatch(("cat", "Cat"), {0: 1, 1: 0}, {0: 0, 1: 1}, ())),
        (("cat", "Cat"), ("Cat", "cat"), {}, ClassMatch(("Cat", "cat"), {0: 1, 1: 0}, {0: 0, 1: 1}, ())),
        # a detector's two classes of one name are one
        (("cat", "cat"), ("cat",), {}, ClassMatch(("cat",), {0: 0, 1: 0}, {0: 0}, ())),
        # several classes of the data are one of the detector
        (
            ("vehicle", "dog"), ("car", "dog", "bus", "truck"), {"car": "vehicle", "bus": "vehicle", "truck": "vehicle"},
            ClassMatch(("vehicle", "dog"), {0: 0, 1: 1}, {0: 0, 1: 1, 2: 0, 3: 0}, ()),
        ),
        (("dog",), ("puppy", "dog"), {"puppy": "dog"}, ClassMatch(("dog",), {0: 0}, {0: 0, 1: 0}, ())),
        (("Dog",), ("puppy", "dog"), {"puppy": "dog"}, ClassMatch(("Dog",), {0: 0}, {0: 0, 1: 0}, ())),
        (("cat", "dog"), ("cat", "dog"), {"cat": "dog", "dog": "cat"}, ClassMatch(("cat", "dog"), {0: 1, 1: 0}, {0: 0, 1: 1}, ())),
        (("cat", "CAT"), ("Cat",), {"Cat": "CAT"}, ClassMatch(("Cat",), {1: 0}, {0: 0}, ())),
    ],
)  # fmt: skip
def test_classes_that_are_the_same(detector, data, class_map, expected):
    assert match_classes(detector, data, class_map) == expected


@pytest.mark.parametrize(
    ("detector", "data", "class_map", "what"),
    [
        (("Cat", "CAT"), ("cat",), {}, "lower case, 'cat' of the data is one of 'CAT', 'Cat' of the detector"),
        (("cat",), ("Cat", "CAT"), {}, "lower case, the classes 'Cat', 'CAT' of the data are 'cat' of the detector"),
        (
            ("cat",),
            ("cat", "tv"),
            {"tv": "tvmonitr"},
            "class_map: 'tvmonitr', for 'tv', is no class of the detector: cat",
        ),
        (("cat",), ("cat",), {"dog": "cat"}, r"class_map: \['dog'\] are not classes of the data: cat"),
        (("cat",), ("dog",), {}, "share no class"),
    ],
)
def test_classes_that_are_not_clear_are_refused(detector, data, class_map, what):
    with pytest.raises(UsageError, match=what):
        match_classes(detector, data, class_map)
