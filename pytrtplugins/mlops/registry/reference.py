"""Parse references to versions: ``animals``, ``animals:3``, ``animals@production``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from ...errors import UsageError
from ...utils.text_formats import shorten
from .history import STAGES, Stage

__all__ = ["Reference", "check_name"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Reference:
    """A user's reference to a version of a model.

    Attributes:
        name: Of the model.
        version: Its number; None: the newest, or the one in the stage.
        stage: The stage that it is in; None: any.
    """

    name: str
    version: int | None = None
    stage: Stage | None = None

    def __str__(self) -> str:
        """The reference as it was written."""
        behind = f":{self.version}" if self.version is not None else f"@{self.stage}" if self.stage is not None else ""
        return self.name + behind

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read ``NAME``, ``NAME:VERSION`` or ``NAME@STAGE``.

        Raises:
            UsageError: it is none of these.
        """
        name, at, stage = text.partition("@")
        if at:
            if stage not in STAGES:
                raise UsageError(f"{shorten(text)}: expected one of the stages {', '.join(STAGES)} behind '@'")
            return cls(check_name(name), stage=cast("Stage", stage))
        name, colon, number = text.partition(":")
        if colon and not _VERSION.fullmatch(number):
            raise UsageError(f"{shorten(text)}: expected a version from 1 on behind ':', such as {check_name(name)}:3")
        return cls(check_name(name), int(number) if colon else None)


def check_name(name: str) -> str:
    """Check a model's name, which is also the name of a folder."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{shorten(name)}: a model's name has letters, digits, '.', '_' and '-', 64 at most, and begins with a letter or digit"
        )
    return name
