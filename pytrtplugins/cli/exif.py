"""The option ``--exif`` of commands that read labelled photos."""

from __future__ import annotations

from typing import Annotated, Literal

from .shared.option import choice

__all__ = ["Exif"]

Exif = Annotated[
    Literal["shown", "stored"] | None,
    choice(
        "What labels are drawn on: photos as they are shown, turned as EXIF says; or the pixels as they are stored. Default: as the "
        "sizes in the labels say; it is needed where EXIF turns photos and they do not say it."
    ),
]
