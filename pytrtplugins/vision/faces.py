"""Detect faces, and align them to the pose that face recognition networks are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ImageError, UsageError
from ..utils.optional import require

__all__ = ["FACE_POINTS", "Face", "FaceFinder", "align_face", "similarity"]

Image = npt.NDArray[np.uint8]
FACE_POINTS = np.array(
    [(38.2946, 51.6963), (73.5318, 51.5014), (56.0252, 71.7366), (41.5493, 92.3655), (70.7299, 92.2041)], np.float64
)
"""Where ArcFace's training images (112x112) have eyes, tip of the nose and corners of the mouth: x, y, left in the image first."""
_SIDE = 112


@dataclass(frozen=True)
class Face:
    """A face on an image.

    Attributes:
        box: Left, top, right, bottom, in pixels.
        points: (5, 2): x and y of eyes, nose and corners of the mouth, left in the image first.
        score: How sure the finder is, 0..1.
    """

    box: tuple[float, float, float, float]
    points: npt.NDArray[np.float64]
    score: float


def similarity(source: npt.ArrayLike, target: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the similarity transform (rotation, scale, translation) that maps points to others with least squares.

    Args:
        source: (N, 2): points x, y, at least two that differ.
        target: (N, 2): where they should go.

    Returns:
        (2, 3): ``target ≈ matrix @ (x, y, 1)``. With complex numbers for points it is one product and one sum; no mirror images.

    Raises:
        UsageError: the points cannot be used.
    """
    points = [np.asarray(array, np.float64) for array in (source, target)]
    if any(array.ndim != 2 or array.shape[1] != 2 or not np.isfinite(array).all() for array in points):
        raise UsageError(f"points: expected two arrays (N, 2) of numbers, found {[array.shape for array in points]}")
    if len(points[0]) != len(points[1]):
        raise UsageError(f"points: expected as many as the target has, {len(points[1])}, found {len(points[0])}")
    sources, targets = (array[:, 0] + 1j * array[:, 1] for array in points)
    source_offsets, target_offsets = sources - sources.mean(), targets - targets.mean()
    squared_sum = float((abs(source_offsets) ** 2).sum())
    if not squared_sum:
        raise UsageError("points: all lie in one place")
    factor = complex((source_offsets.conj() * target_offsets).sum() / squared_sum)
    shift = complex(targets.mean() - factor * sources.mean())
    return np.array([[factor.real, -factor.imag, shift.real], [factor.imag, factor.real, shift.imag]])


def align_face(image: Image, points: npt.ArrayLike, size: int = _SIDE) -> Image:
    """Rotate, scale and crop a face to the pose of ArcFace's training images.

    Args:
        image: (H, W, 3) uint8, RGB.
        points: (5, 2): eyes, nose and corners of the mouth in the image, as `Face.points`.
        size: Side of the result, in pixels.

    Returns:
        (size, size, 3) uint8; what lies outside the image is black. Bilinear.
    """
    cv2 = require("cv2", extra="vision", package="opencv-python-headless", feature="aligning faces")
    matrix = similarity(points, FACE_POINTS * (size / _SIDE))
    aligned: Any = cv2.warpAffine(image, matrix, (size, size), flags=cv2.INTER_LINEAR)
    return aligned  # type: ignore[no-any-return]


class FaceFinder:
    """Detector of faces and their five points, by OpenCV's FaceDetectorYN.

    Args:
        path: The detector's model, ``face_detection_yunet_*.onnx`` of OpenCV's zoo.
        score: Lowest score of a face, 0..1.

    Raises:
        UsageError: there is no such file, or OpenCV cannot read it.
    """

    def __init__(self, path: str | Path, score: float = 0.7) -> None:
        cv2 = require("cv2", extra="vision", package="opencv-python-headless", feature="finding faces")
        if not Path(path).is_file():
            raise UsageError(f"face detector {str(path)!r}: no such file. Looked for: {Path(path).absolute()}")
        try:
            self._detector = cv2.FaceDetectorYN.create(str(path), "", (320, 320), score)
        except cv2.error as error:
            raise UsageError(
                f"face detector {str(path)!r}: not a model of FaceDetectorYN ({str(error)[:200]})"
            ) from error

    def __call__(self, image: Image) -> list[Face]:
        """Return the faces on an image (H, W, 3) uint8, RGB, the largest first."""
        height, width = image.shape[:2]
        self._detector.setInputSize((width, height))
        _, rows = self._detector.detect(np.ascontiguousarray(image[:, :, ::-1]))
        faces = [self._parse_row(row) for row in (() if rows is None else rows)]
        return sorted(faces, key=lambda face: (face.box[0] - face.box[2]) * (face.box[3] - face.box[1]))

    def aligned(self, image: Image, name: str = "image", size: int = _SIDE) -> Image:
        """Return the largest face of an image, aligned.

        Raises:
            ImageError: there is none.
        """
        faces = self(image)
        if not faces:
            raise ImageError(f"{name}: no face was found.\nDo: give a photo on which a face is larger", path=Path(name))
        return align_face(image, faces[0].points, size)

    @staticmethod
    def _parse_row(row: npt.NDArray[np.float32]) -> Face:
        x, y, width, height = row[:4].tolist()
        points = np.asarray(row[4:14], np.float64).reshape(5, 2)
        return Face((x, y, x + width, y + height), points, float(row[14]))
