"""Description of a deployment: models, number of replicas, and the container image."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..backends.versions import check_versions
from ..model.spec import Limits, ModelSpec
from ..scale import Scale

__all__ = ["Deployment", "check_label"]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IMAGE = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?::[0-9]{1,5})?/)?"  # host:port/
    r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


@dataclass(frozen=True)
class Deployment:
    """Models, number of replicas, and the container image.

    Attributes:
        name: Of the objects in a cluster: a label of RFC 1123.
        specs: The models.
        scale: How many replicas, and what each gets.
        limits: Of requests.
        image: Name of the image, with its registry and tag.
        port: Of HTTP.
        options: Further options of `pytrt serve`, by their long names.
        files: Further files that the models open, for the working directory of the image.
        wheel: Wheel of this package for the image; None: pip gets the version that is installed here.
        secret: Name of the Kubernetes Secret with the file ``keys.toml``; None: clients need no keys.
        drain_delay_s: How long a pod still answers after it was told to end, until all that route requests know of it.

    Raises:
        UsageError: a name is not what a cluster takes, or two models have one name.
    """

    name: str
    specs: Sequence[ModelSpec]
    scale: Scale = field(default_factory=Scale)
    limits: Limits = field(default_factory=Limits)
    image: str = ""
    port: int = 8000
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Path] = ()
    wheel: Path | None = None
    secret: str | None = None
    drain_delay_s: int = 5

    def __post_init__(self) -> None:
        check_versions(self.specs)
        check_label("--name", self.name)
        if self.secret is not None:
            check_label("--secret", self.secret)
        object.__setattr__(self, "image", self.image or f"{self.name}:1")
        if len(self.image) > 255 or not _IMAGE.fullmatch(self.image):
            raise UsageError(
                f"--image: expected a name such as registry.example.com/animals:1, found {self.image[:80]!r}"
            )

    def refuse(self, kind: str, *attributes: str) -> None:
        """Refuse what a kind of export cannot follow.

        Raises:
            UsageError: one of these attributes is set.
        """
        for name in attributes:
            if getattr(self, name):
                raise UsageError(f"--{name.removesuffix('s')}: {kind} has no place for it.\nDo: leave it out")

    @property
    def whole_gpus(self) -> int:
        """GPUs of a replica where there are no parts of one.

        Raises:
            UsageError: a replica is to get a part.
        """
        if self.scale.gpus != int(self.scale.gpus):
            raise UsageError(
                f"gpus: {self.scale.gpus} of a GPU can only be had on Ray; here a replica gets whole ones.\n"
                "Do: --gpus 1; with gpu = 2 in the table [serve] of the file of --config, two engine processes share it"
            )
        return int(self.scale.gpus)

    @property
    def grace_s(self) -> int:
        """Seconds from the order to end until a container is killed."""
        return self.drain_delay_s + self.scale.drain_seconds + 5


def check_label(option: str, text: str) -> str:
    """Check a name that Kubernetes uses as a label (RFC 1123)."""
    if not _LABEL.fullmatch(text):
        close = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].strip("-") or "models"
        raise UsageError(
            f"{option}: expected lower-case letters, digits and '-', 63 at most (RFC 1123), found {text[:80]!r}\n"
            f"Do: {option} {close}",
            name=text,
        )
    return text
