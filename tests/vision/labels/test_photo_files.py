"""Which photos the name of a file of labels tells."""

import pytest

from pytrtplugins.vision.labels.pairing import PathIndex
from pytrtplugins.vision.labels.photo_files import _in_folder_of_split

PATHS = ("val2017/a.jpg", "set/val2017/a.jpg", "images/a.jpg")


@pytest.mark.parametrize(
    ("near", "levels"),
    [
        ("annotations/instances_val2017.json", [["val2017/a.jpg"], ["set/val2017/a.jpg"]]),
        ("val2017.json", [["val2017/a.jpg"], ["set/val2017/a.jpg"]]),
        ("annotations/set_images.json", []),  # a kind of file, and no folder of its own
        ("labels.json", []),
        ("", []),
    ],
)
def test_photos_are_in_the_folder_that_the_last_word_names(near, levels):
    assert _in_folder_of_split(near, "a.jpg", PathIndex(PATHS, stems=False)) == levels
