"""Images with labels: folders and arrays, their order, their parts, and what is refused."""

import numpy as np
import pytest

from pytrtplugins.errors import FormatError, NoDataError
from pytrtplugins.mlops.tables import LabelledImages
from pytrtplugins.vision import save_image

from .people import photos


def test_a_folder_and_an_npz_file_of_the_same_images_give_the_same(tmp_path, faces):
    for name, image in photos().items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        save_image(image, path)
    (tmp_path / "folder" / "beside.png").write_bytes(b"")  # without a label
    (tmp_path / "folder" / "s1" / "notes.txt").write_text("no image")
    folder = LabelledImages(tmp_path / "folder")
    assert folder.names == faces.names
    assert folder.labels == faces.labels == ("s1", "s2", "s3", "s4", "s5", "s6")
    for name in folder.names:
        assert np.array_equal(folder.image(name), faces.image(name))


def test_numbers_in_names_count_as_numbers(tmp_path):
    image = np.zeros((2, 2), np.uint8)
    np.savez(tmp_path / "x.npz", **dict.fromkeys(("s10/1", "s2/11", "s2/2", "s1/1"), image))
    found = LabelledImages(tmp_path / "x.npz")
    assert found.names == ("s1/1", "s2/2", "s2/11", "s10/1")
    assert found.labels == ("s1", "s2", "s10")
    assert found.numbers.tolist() == [0, 1, 1, 2]
    assert found.image("s1/1").shape == (2, 2, 3)


def test_a_split_divides_labels_and_images_of_a_label_stay_together(faces):
    first, rest = faces.split(0.5)
    assert first.labels == ("s1", "s2", "s3")
    assert rest.labels == ("s4", "s5", "s6")
    assert (*first.names, *rest.names) == faces.names
    assert first.digest() != rest.digest()


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_a_split_with_an_empty_part_is_refused(faces, share):
    with pytest.raises(NoDataError, match="cannot be divided"):
        faces.split(share)


def test_the_digest_of_a_folder_changes_with_a_file(tmp_path):
    for label in "ab":
        (tmp_path / label).mkdir()
        save_image(np.zeros((4, 4, 3), np.uint8), tmp_path / label / "1.png")
    before = LabelledImages(tmp_path).digest()
    assert LabelledImages(tmp_path).digest() == before
    save_image(np.ones((4, 4, 3), np.uint8), tmp_path / "a" / "1.png")
    assert LabelledImages(tmp_path).digest() != before


def test_a_missing_folder_and_one_without_labels_are_refused(tmp_path):
    with pytest.raises(NoDataError, match="no such folder or file"):
        LabelledImages(tmp_path / "nowhere")
    save_image(np.zeros((4, 4, 3), np.uint8), tmp_path / "1.png")
    with pytest.raises(NoDataError, match="a folder for each label"):
        LabelledImages(tmp_path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("s1/1", np.zeros((2, 2, 3), np.float32)),
        ("s1/1", np.zeros((2, 2, 4), np.uint8)),
        ("s1/1", np.zeros((0, 2), np.uint8)),
        ("unlabelled", np.zeros((2, 2), np.uint8)),
    ],
)
def test_arrays_that_are_no_labelled_images_are_refused_by_name(tmp_path, name, array):
    np.savez(tmp_path / "x.npz", **{name: array})
    with pytest.raises(FormatError, match=name):
        LabelledImages(tmp_path / "x.npz")
