"""The option ``--exif`` of commands that read labelled photos."""

from __future__ import annotations

from typing import Annotated, Literal

from ..utils.optional import require

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["Exif"]

Exif = Annotated[
    Literal["shown", "stored"] | None,
    typer.Option(
        help="What labels are drawn on: photos as they are shown, turned as EXIF says; or the pixels as they are stored. Default: as the "
        "sizes in the labels say; it is needed where EXIF turns photos and they do not say it."
    ),
]
