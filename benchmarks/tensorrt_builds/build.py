"""Builds one model with TensorRT for RTX, and reads the builder's log."""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import onnx

from ..node_tests import FAILED, PASSED, REFUSED, Outcome
from .layer_list import Layer, has_layers, read_layers
from .products import LOW_TYPES, Products, count_products
from .subjects import Subject

__all__ = ["ENGINE", "Build", "BuildLog", "build", "recorded"]

ENGINE = "tensorrt_rtx"
SCALE = np.float32(0.05)
"""Scale of every tensor: which layers compute in the low type does not depend on it."""
OWN_WARNING = re.compile(r"plugin|creator|duplicate", re.IGNORECASE)
"""Warnings of TensorRT's that have their cause in what this package gives it."""


@dataclass
class BuildLog(logging.Handler):
    """The messages of TensorRT that matter here.

    Attributes:
        layers: The layers of the last engine.
        warnings: Texts of all messages at WARNING or higher.
    """

    layers: tuple[Layer, ...] = ()
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.DEBUG)

    __hash__ = logging.Handler.__hash__  # logging keeps handlers by identity

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a list of layers, or a warning."""
        message = record.getMessage()
        if record.levelno >= logging.WARNING:
            self.warnings.append(message)
        elif has_layers(message):
            self.layers = read_layers(message)

    @property
    def own_warnings(self) -> list[str]:
        """Warnings that this package causes."""
        return [text for text in self.warnings if OWN_WARNING.search(text)]


@dataclass(frozen=True)
class Build:
    """A model that was built.

    Attributes:
        plan_bytes: Size of the serialized engine.
        seconds: What the build took.
        layers: Number of layers.
        products: Convolutions and matrix products; None in FP32.
        warnings: Warnings that this package caused.
    """

    plan_bytes: int
    seconds: float
    layers: int
    products: Products | None
    warnings: tuple[str, ...]


@contextmanager
def recorded() -> Iterator[BuildLog]:
    """Record what TensorRT logs inside the block; nothing is printed."""
    logger, log = logging.getLogger("pytrtplugins"), BuildLog()
    level, propagate, disabled = logger.level, logger.propagate, logging.root.manager.disable
    logging.disable(logging.NOTSET)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(log)
    try:
        yield log
    finally:
        logger.removeHandler(log)
        logger.setLevel(level)
        logger.propagate = propagate
        logging.disable(disabled)


def build(subject: Subject) -> Outcome:
    """Build a model in this process; the values of the outcome are a `Build`."""
    from pytrtplugins.errors import PytrtpluginsError

    with warnings.catch_warnings(), recorded() as log:
        warnings.simplefilter("ignore")
        try:
            return Outcome(PASSED, values=_build(subject, log))
        except PytrtpluginsError as error:
            return Outcome(REFUSED, f"{type(error).__name__}: {error}")
        except Exception as error:
            return Outcome(FAILED, f"{type(error).__name__}: {error}")


def _build(subject: Subject, log: BuildLog) -> Build:
    import pytrtplugins as ptp
    from pytrtplugins.calibration import CalibrationTable
    from pytrtplugins.engines.tensorrt.graph import ParserForm, written_out
    from pytrtplugins.passes import prepare, run_passes

    model = subject.load()
    calibration = None
    if subject.quantize:
        model = prepare(model)
        calibration = CalibrationTable(dict.fromkeys(_tensors(model), SCALE))
    begun = time.perf_counter()
    engine = ptp.build(model, engine=ENGINE, precision=subject.precision, calibration=calibration, progress=False)
    seconds = time.perf_counter() - begun
    products = None
    if subject.precision in LOW_TYPES:
        products = count_products(run_passes(written_out(engine.model), ParserForm()), log.layers, subject.precision)
    plan = engine.payload()
    return Build(len(plan), seconds, len(log.layers), products, tuple(log.own_warnings))


def _tensors(model: onnx.ModelProto) -> list[str]:
    inputs = [info.name for info in model.graph.input]
    return list(dict.fromkeys([*inputs, *(name for node in model.graph.node for name in node.output if name)]))
