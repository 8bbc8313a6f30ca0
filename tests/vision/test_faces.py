"""Faces are aligned by five points, and found by OpenCV's detector."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.errors import ImageError, UsageError
from pytrtplugins.vision.faces import FACE_POINTS, FaceFinder, align_face, similarity

cv2 = pytest.importorskip("cv2")
coordinate = st.floats(-1000, 1000)


def by_least_squares(source, target):
    """The same transform from the normal equations of its four numbers: a, b, shifts."""
    rows, values = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, -y, 1, 0], [y, x, 0, 1]]
        values += [u, v]
    a, b, right, down = np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0]
    return np.array([[a, -b, right], [b, a, down]])


@given(st.lists(st.tuples(coordinate, coordinate), min_size=5, max_size=5, unique=True))
def test_the_transform_is_that_of_least_squares(points):
    source = np.array(points)
    if np.ptp(source, axis=0).max() < 1:
        return
    assert np.allclose(similarity(source, FACE_POINTS), by_least_squares(source, FACE_POINTS), atol=1e-6, rtol=1e-6)


def test_a_turned_and_scaled_face_comes_back():
    turn = 1.7 * np.exp(0.4j)
    moved = (FACE_POINTS[:, 0] + 1j * FACE_POINTS[:, 1]) * turn + (30 + 80j)
    matrix = similarity(np.stack([moved.real, moved.imag], axis=1), FACE_POINTS)
    assert np.allclose(matrix[:, :2] @ [moved.real, moved.imag] + matrix[:, 2:], FACE_POINTS.T)
    assert np.isclose(np.hypot(*matrix[:, 0]), 1 / 1.7)


@pytest.mark.parametrize("size", [56, 112, 160, 224])
def test_marks_at_the_points_of_an_image_end_where_they_belong_at_every_size(size):
    points = FACE_POINTS * 4 + (40, 25)
    image = np.zeros((500, 520, 3), np.uint8)
    for x, y in points.round().astype(int):
        image[y - 4 : y + 5, x - 4 : x + 5] = 255
    aligned = align_face(image, points, size)
    assert aligned.shape == (size, size, 3)
    for x, y in (FACE_POINTS * size / 112).round().astype(int):
        assert aligned[y, x].min() > 200
        image[y - 2 : y + 3, x - 2 : x + 3] = 255
    found = align_face(image, points)
    assert found.shape == (112, 112, 3)
    for x, y in FACE_POINTS.round().astype(int):
        assert found[y, x].min() > 200
    small = align_face(image, points, 56)
    assert small.shape == (56, 56, 3)
    for x, y in (FACE_POINTS / 2).round().astype(int):
        assert small[y, x].max() > 100  # a mark covers 1.25 pixels
    assert np.count_nonzero(small.max(2) > 100) < 5 * 9


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (np.zeros((4, 2)), "as many as the target has, 5, found 4"),
        (np.zeros((5, 3)), r"two arrays \(N, 2\)"),
        (np.zeros((5, 2)), "all lie in one place"),
        (np.full((5, 2), np.nan), "of numbers"),
    ],
)
def test_points_that_cannot_be_used_are_refused(points, said):
    with pytest.raises(UsageError, match=said):
        align_face(np.zeros((8, 8, 3), np.uint8), points)


class Detector:
    """What OpenCV's detector would give: rows of a box, five points and a score."""

    def __init__(self, rows):
        self.rows, self.size, self.seen = rows, None, None

    def setInputSize(self, size):
        self.size = size

    def detect(self, image):
        self.seen = image
        return 1, self.rows


@pytest.fixture
def finder(tmp_path, monkeypatch):
    """A finder around a stub."""
    (tmp_path / "yunet.onnx").write_bytes(b"")

    def make(rows):
        stub = Detector(rows)

        class Stub:
            create = staticmethod(lambda *given: stub)

        monkeypatch.setattr(cv2, "FaceDetectorYN", Stub)
        return FaceFinder(tmp_path / "yunet.onnx"), stub

    return make


def row(left, top, side, score=0.9):
    points = FACE_POINTS / 112 * side + (left, top)
    return np.array([left, top, side, side, *points.ravel(), score], np.float32)


def test_the_largest_face_is_aligned_and_opencv_sees_bgr(finder):
    found, stub = finder(np.stack([row(0, 0, 20), row(30, 10, 112)]))
    image = np.random.default_rng(0).integers(0, 256, (140, 160, 3), np.uint8)
    faces = found(image)
    assert [face.box for face in faces] == [(30, 10, 142, 122), (0, 0, 20, 20)]
    assert stub.size == (160, 140)
    assert np.array_equal(stub.seen, image[:, :, ::-1])
    aligned = found.aligned(image)
    assert np.abs(aligned.astype(int) - image[10:122, 30:142]).max() <= 1


def test_an_image_without_a_face_is_an_error_with_its_name(finder):
    found, _ = finder(None)
    with pytest.raises(ImageError, match=r"a\.jpg: no face was found"):
        found.aligned(np.zeros((8, 8, 3), np.uint8), "a.jpg")


def test_a_detector_that_is_none_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        FaceFinder(tmp_path / "yunet.onnx")
    (tmp_path / "yunet.onnx").write_bytes(b"no model")
    with pytest.raises(UsageError, match="not a model of FaceDetectorYN"):
        FaceFinder(tmp_path / "yunet.onnx")
