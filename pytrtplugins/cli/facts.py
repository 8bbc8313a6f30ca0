"""Results of the commands of ``pytrt`` that no class of the library has; the fields are keys of the JSON (docs/how-to/shell.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engines.base.types import Availability, ChosenKernel
from ..models import Evaluation, Published
from ..passes import Finding
from .model_facts import EngineFacts, TensorFacts

if TYPE_CHECKING:
    from ..engines.cuda.profile import StepTime

__all__ = [
    "Built",
    "Calibrated",
    "Devices",
    "Downloaded",
    "Edited",
    "Evaluated",
    "Imported",
    "Offered",
    "Offers",
    "Profiled",
    "RepairFacts",
    "Searched",
    "Treated",
    "WrittenFile",
]


@dataclass(frozen=True)
class Devices:
    """All engines, and whether they can be used.

    Attributes:
        auto: The engine that ``auto`` takes.
        engines: All engines.
    """

    auto: str
    engines: tuple[Availability, ...]


@dataclass(frozen=True)
class WrittenFile:
    """The file that was written.

    Attributes:
        file: Its path.
        bytes: Its size.
    """

    file: str
    bytes: int


@dataclass(frozen=True)
class Built:
    """The engine that was built.

    Attributes:
        engine: What it is.
        kernels: Those that the engine chose among several, such as engine cuda for each convolution that differs.
        seconds: How long it took.
        bytes: The file's size.
    """

    engine: EngineFacts
    kernels: tuple[ChosenKernel, ...]
    seconds: float
    bytes: int


@dataclass(frozen=True)
class Calibrated:
    """The calibration cache that was written.

    Attributes:
        file: Its path.
        tensors: How many tensors have a scale.
        algorithm: How the scales were chosen.
    """

    file: str
    tensors: int
    algorithm: str


@dataclass(frozen=True)
class Evaluated:
    """The average precision of a detector.

    Attributes:
        engine: The engine that ran it.
        precision: The precision that it was built for; ``figures.computed`` says what its layers computed in.
        figures: What was measured.
    """

    engine: str
    precision: str
    figures: Evaluation


@dataclass(frozen=True)
class Imported:
    """The converted model.

    Attributes:
        file: Its path.
        nodes: How many nodes it has.
        parameters: How many numbers its weights have.
        tensors: Its inputs and outputs.
        next: The command that shows more of it.
    """

    file: str
    nodes: int
    parameters: int
    tensors: tuple[TensorFacts, ...]
    next: str


@dataclass(frozen=True)
class RepairFacts:
    """The findings of a repair.

    Attributes:
        model: The model's file.
        file: The file that was written; None where none was.
        faults: How many findings are faults.
        leftovers: How many are removed without a change of the numbers.
        changes: How many were made on request alone.
        findings: All of them.
        next: The command that goes on from here; empty where there is none.
    """

    model: str
    file: str | None
    faults: int
    leftovers: int
    changes: int
    findings: tuple[Finding, ...]
    next: str


@dataclass(frozen=True)
class Edited:
    """The model that was written by replace, extract or embed.

    Attributes:
        file: Its path.
        nodes: How many nodes it has.
        of: How many nodes the model had before.
        tensors: Its inputs and outputs.
        done: What was done.
        next: The command that goes on from here; empty where there is none.
    """

    file: str
    nodes: int
    of: int
    tensors: tuple[TensorFacts, ...]
    done: str
    next: str = ""


@dataclass(frozen=True)
class Treated:
    """A layer with a precision of its own.

    Attributes:
        layer: Its name.
        precision: In which it is computed.
        strategy: How it is treated: pin, half-weights, per-channel or calibrator.
        reason: Why.
    """

    layer: str
    precision: str
    strategy: str
    reason: str


@dataclass(frozen=True)
class Searched:
    """The result of a precision search; the JSON file next to the precision file has all details.

    Attributes:
        file: The precision file.
        figures: The file of all figures.
        layers: The layers that are not computed like the others.
        holds: Whether the outputs are within tolerance.
        reason: Why the search ended.
        final_before: Error of the outputs with every layer in low precision; 1 is the tolerance.
        final: Error of the outputs with the precision file.
        latency_before_us: Latency with every layer in low precision, in microseconds.
        latency_us: Latency with the precision file.
        latency_fp32_us: Latency in float32.
        runs: How often the network was evaluated.
    """

    file: str
    figures: str
    layers: tuple[Treated, ...]
    holds: bool
    reason: str
    final_before: float
    final: float
    latency_before_us: float
    latency_us: float
    latency_fp32_us: float
    runs: int


@dataclass(frozen=True)
class Profiled:
    """The steps of a network with their times, and the total.

    Attributes:
        microseconds: Of the whole run on the GPU, as one graph.
        steps: In order.
    """

    microseconds: float
    steps: tuple[StepTime, ...]


@dataclass(frozen=True)
class Offered:
    """A model that can be downloaded.

    Attributes:
        model: What it is.
        file: The user's copy; null where there is none.
    """

    model: Published
    file: str | None


@dataclass(frozen=True)
class Offers:
    """All models that can be downloaded.

    Attributes:
        models: All of them.
    """

    models: tuple[Offered, ...]


@dataclass(frozen=True)
class Downloaded:
    """The model that was downloaded.

    Attributes:
        name: Its name, which commands take in the place of a file.
        file: The file of the model.
        files: All its files.
    """

    name: str
    file: str
    files: tuple[WrittenFile, ...]
