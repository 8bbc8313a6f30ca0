"""Draw boxes and labels on an image."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..utils.optional import require
from .detection import Detection
from .image import Image, check_image

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

__all__ = ["class_color", "draw"]

_GOLDEN_RATIO = 0.618034


def class_color(class_id: int) -> tuple[int, int, int]:
    """Return the colour of a class, RGB in 0..255: always the same, and very different for adjacent class numbers."""
    red, green, blue = colorsys.hsv_to_rgb((0.02 + class_id * _GOLDEN_RATIO) % 1, 0.85, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def draw(image: Image, detections: Iterable[Detection]) -> Image:
    """Draw boxes and labels such as ``dog 82%`` on a copy of an image.

    Lines and letters grow with the image. The highest scores are on top, and labels above all boxes.

    Args:
        image: (H, W, 3) uint8, RGB.
        detections: What was found on it.

    Raises:
        ImageError: the array is not an image.
    """
    image = check_image(image)
    pil = require("PIL.Image", extra="vision", package="pillow", feature="drawing")
    canvas = pil.fromarray(np.ascontiguousarray(image))
    brush = require("PIL.ImageDraw", extra="vision", package="pillow").Draw(canvas)
    side = max(1.0, (image.shape[0] * image.shape[1]) ** 0.5)
    font = require("PIL.ImageFont", extra="vision", package="pillow").load_default(size=max(12, round(side / 32)))
    thickness = max(1, round(side / 220))
    ordered = sorted(detections, key=lambda item: item.score)
    for detection in ordered:
        left, top, right, bottom = detection.xyxy
        corners = (left, top, max(left, right), max(top, bottom))
        brush.rectangle(corners, outline=class_color(detection.class_id), width=thickness)
    for detection in ordered:
        _draw_label(brush, font, detection, 2 * thickness, image.shape[1], image.shape[0])
    return np.asarray(canvas)


def _draw_label(
    brush: ImageDraw, font: FreeTypeFont | ImageFont, detection: Detection, margin: int, width: int, height: int
) -> None:
    color, text = class_color(detection.class_id), f"{detection.name} {100 * detection.score:.0f}%"
    left, top = detection.xyxy[:2]
    x1, y1, x2, y2 = font.getbbox(text)
    wide, high = x2 - x1 + 2 * margin, y2 - y1 + 2 * margin
    x = min(max(0.0, left), max(0.0, width - wide))
    y = top - high if top >= high else min(top, max(0.0, height - high))  # above the box, inside where there is no room
    brush.rectangle((x, y, x + wide, y + high), fill=color)
    light = 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] > 140
    brush.text((x + margin - x1, y + margin - y1), text, font=font, fill=(0, 0, 0) if light else (255, 255, 255))
