"""The option ``--exif`` of commands that read labelled photos."""

from __future__ import annotations

from typing import Annotated, Literal

from .shared.option import choice

__all__ = ["Exif"]

Exif = Annotated[
    Literal["shown", "stored"] | None,
    choice(
        "What labels refer to: photos as shown (rotated by EXIF), or pixels as stored. Default: by the sizes in the labels; needed "
        "if EXIF rotates photos and the labels have no sizes."
    ),
]
