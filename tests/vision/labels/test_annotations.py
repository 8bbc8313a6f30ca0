"""Numbers of classes, and photos that a list names."""

import numpy as np
import pytest

from pytrtplugins.vision.labels.annotations import ClassNumbers, LabelledPhoto, PhotoFilter, UnknownClassError, rows_of
from pytrtplugins.vision.labels.photo_files import PhotoFiles

PHOTOS = PhotoFiles(("images/a.jpg", "images/b.jpg", "x/c.jpg", "y/c.jpg"))  # names, instead of files


def wanted(*names):
    return PhotoFilter(names, PHOTOS.listed)


@pytest.mark.parametrize(
    "name",
    [
        "images/a.jpg",
        "a.jpg",
        "a",
        "images/a",
        "./images/a.jpg",
        "/home/me/set/images/a.jpg",
        "set\\images\\a.jpg",
        "data/images/a",
    ],
)
def test_a_list_may_name_a_photo_so(name):
    photos = wanted(name)
    assert "images/b.jpg" not in photos
    assert photos.unused()[0].file == name
    assert "images/a.jpg" in photos
    assert photos.unused() == []


@pytest.mark.parametrize("name", ["other/a.jpg", "a.png", "ges/a.jpg", "images", ".jpg", ""])
def test_other_names_are_of_other_photos(name):
    assert "images/a.jpg" not in wanted(name)


@pytest.mark.parametrize("name", ["c.jpg", "c", "images/c"])
def test_a_name_of_two_photos_is_named_and_neither_is_wanted(name):
    photos = wanted(name)
    assert [file for file in PHOTOS.names if file in photos] == []
    (problem,) = photos.unused()
    assert (problem.file, problem.what.count("may be x/c.jpg or y/c.jpg")) == (name, 1)


def test_without_a_list_all_are_wanted_and_with_an_empty_one_none():
    everything = PhotoFilter(None, PHOTOS.listed)
    assert "a.jpg" in everything
    assert everything.unused() == []
    assert "a.jpg" not in wanted()


def test_classes_that_are_found_get_the_order_of_the_alphabet():
    numbers = ClassNumbers()
    rows = [(numbers.number(name), 0, 0, 1, 1) for name in ("dog", "ape", "dog", "cat")]
    photo = LabelledPhoto("a.jpg", rows_of(rows))
    assert numbers.finish([photo]) == ("ape", "cat", "dog")
    assert photo.boxes[:, 0].tolist() == [2, 0, 2, 1]


def test_classes_that_are_declared_keep_their_order():
    numbers = ClassNumbers()
    numbers.declare(["dog", "ape"])
    numbers.declare(["ape", "cat"])
    assert [numbers.number(name) for name in ("ape", "cat")] == [1, 2]
    with pytest.raises(UnknownClassError, match="unknown class 'cow'; known are"):
        numbers.number("cow")
    assert numbers.finish([]) == ("dog", "ape", "cat")


def test_classes_that_are_given_win_over_declared_ones():
    numbers = ClassNumbers(["cat", "dog"], drop=True)
    numbers.declare(["dog", "ape"])
    assert [numbers.number(name) for name in ("dog", "ape")] == [1, None]
    assert numbers.finish([]) == ("cat", "dog")


def test_pixels_become_shares():
    assert rows_of([(1, 10, 5, 20, 10)], (40, 20)).tolist() == [[1, 0.25, 0.25, 0.5, 0.5]]
    assert rows_of([]).shape == (0, 5)
    with pytest.raises(ValueError, match="not a finite number"):
        rows_of([(1, np.inf, 0, 1, 1)])
