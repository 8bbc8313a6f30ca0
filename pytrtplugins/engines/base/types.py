"""Facts that contexts need about their engine, and protocols for building and finding engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from ...errors import UsageError
from ...plugin.policy import requested_forms
from ...tensor import TensorDesc
from ...utils.numbers import MAX_THREADS, check_int
from ...utils.optional import onnx

__all__ = ["Availability", "BuildOptions", "ChosenKernel", "OwningEngine"]


@dataclass(frozen=True)
class ChosenKernel:
    """A kernel that was selected for a part of the network.

    Attributes:
        layers: Names of the layers that it computes.
        problem: What it computes.
        kernel: The kernel that was chosen.
        microseconds: How long it took; 0 where nothing was timed.
        rivals: How many other kernels were timed.
    """

    layers: tuple[str, ...]
    problem: str
    kernel: str
    microseconds: float
    rivals: int


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build.

    Attributes:
        precision: Arithmetic of the layers: ``"fp32"``, ``"bf16"``, ``"fp16"``, ``"int8"`` or ``"fp8"``.
        threads: Threads of one run; None: all cores that the process may use.
        device: The engine's own name for a device, such as ``"CPU"``; None: its default.
        settings: The engine's own settings, by name; values of JSON, and paths, which become texts.
        plugins: Plugin, such as ``"acme::Scale"`` → the form that the engine is to run, one of `pytrtplugins.plugin.policy.FORMS`;
            the others run as the engine prefers (docs/explanation/lifecycle.md).

    Raises:
        UsageError: an option has another type, or there is no such form.
    """

    precision: str = "fp32"
    threads: int | None = None
    device: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    plugins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.settings, Mapping):
            raise UsageError(f"settings: expected values by name, found {self.settings!r}")
        values = {name: str(value) if isinstance(value, Path) else value for name, value in self.settings.items()}
        object.__setattr__(self, "settings", values)
        object.__setattr__(self, "plugins", requested_forms(self.plugins))
        if self.threads is not None:
            object.__setattr__(self, "threads", check_int("threads", self.threads, 1, MAX_THREADS))


@dataclass(frozen=True)
class Availability:
    """Whether an engine can be used on this machine.

    Attributes:
        name: The engine's name.
        reason: Why it cannot be used, with the next command; empty when it can.
        details: Versions and devices.
        builds: Whether engine files can be made here all the same, for other machines.
    """

    name: str
    reason: str
    details: str
    builds: bool = False

    @property
    def available(self) -> bool:
        """Whether the engine can be used on this machine."""
        return not self.reason


class OwningEngine(Protocol):
    """Interface of a context's engine; `Engine` implements it.

    Attributes:
        name: The engine's name.
        nests: Whether a plugin of a running network may run the same engine through another context.
    """

    name: ClassVar[str]
    nests: ClassVar[bool]

    @property
    def inputs(self) -> tuple[TensorDesc, ...]:
        """Name, dims and dtype of each input."""

    @property
    def outputs(self) -> tuple[TensorDesc, ...]:
        """Descriptions of the outputs."""

    @property
    def model_without_weights(self) -> onnx.ModelProto:
        """The model as built, whose weights may have no values."""

    def check_process(self) -> None:
        """Require the process that the engine was made in, where its library cannot be used in a child."""
