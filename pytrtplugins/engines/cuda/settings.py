"""What a user chooses of engine ``cuda``: the GPU, the batches and so the sizes to choose kernels for, the type of float layers."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UnavailableError, UsageError
from ...model.operator_traits import Trait, operators
from ...passes import CODES, Placement
from ...tensor import DType, SymbolicDim, TensorDesc
from ...utils.numbers import LARGEST_BATCH, check_int
from ...utils.optional import onnx
from ..base.engine import ALWAYS
from ..base.types import BuildOptions
from .conv.tactics import FP8_CAPABILITY
from .device.device import CudaDevice
from .lower.pipeline import check_disable

__all__ = [
    "CUDNN_SECONDS",
    "PLACEMENT",
    "batches",
    "check_fp8",
    "compares_int8",
    "cudnn_seconds",
    "device_number",
    "example_sizes",
    "float_type",
    "holds_fp8",
    "planned_sizes",
]

PLACEMENT = Placement(layers=operators(Trait.WEIGHTED))
"""Q/DQ as TensorRT wants it, and for recurrent layers, too: their products of inputs have int8 kernels."""
_SIDE = 256
"""The size of free dims but the batch with which a network is looked at while it is built."""
CUDNN_SECONDS, _MAX_CUDNN_SECONDS = 45, 24 * 3600
"""The default leaves half of 90 seconds to all other kernels of a network and to their timing."""


def float_type(options: BuildOptions) -> DType:
    """The element type of the layers that compute in float."""
    if options.precision in CODES:
        chosen = options.settings.get("float", "float16")
        if chosen not in ("float16", "float32"):
            raise UsageError(f"engine 'cuda': float: expected float16 or float32, found {chosen!r}", setting="float")
        return DType(chosen)
    return DType.FLOAT16 if options.precision == "fp16" else DType.FLOAT32


def check_fp8(device: CudaDevice) -> None:
    """Refuse a GPU without arithmetic in FP8.

    Raises:
        UnavailableError: it has none.
    """
    if device.capability < FP8_CAPABILITY:
        raise UnavailableError(
            f"engine 'cuda': GPU {device.number}, {device.model}, has compute capability {device.capability / 10}, and no "
            f"arithmetic in FP8, which begins with {FP8_CAPABILITY / 10}.\n"
            'Do: precision="int8", with the same calibration, or precision="fp16"',
            device=device.number,
            capability=device.capability,
        )


def holds_fp8(model: onnx.ModelProto) -> bool:
    """Whether a model has codes of FP8, whatever the precision is called."""
    return onnx.TensorProto.FLOAT8E4M3FN in {each.data_type for each in model.graph.initializer}


def batches(options: BuildOptions) -> tuple[int, ...]:
    """The batches for which kernels are chosen while building.

    Raises:
        UsageError: there are none, or one is no whole number.
    """
    given = options.settings.get("batch", (1,))
    batches = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not batches:
        raise UsageError("engine 'cuda': batch: expected a whole number, or several, found none", setting="batch")
    return tuple(check_int("engine 'cuda': batch", batch, 1, LARGEST_BATCH) for batch in batches)


def cudnn_seconds(options: BuildOptions) -> int:
    """How long cuDNN's plans may be built and timed while the kernels of a batch are chosen.

    Raises:
        UsageError: it is no whole number of seconds.
    """
    given = options.settings.get("cudnn_seconds", CUDNN_SECONDS)
    return check_int("engine 'cuda': cudnn_seconds", given, 1, _MAX_CUDNN_SECONDS)


def compares_int8(options: BuildOptions) -> bool:
    """Whether INT8 is compared with float by time: kernels are chosen by timing, and nobody asks for INT8 in any case."""
    is_asked = options.precision == "int8" and options.settings.get("int8") != ALWAYS
    return is_asked and "tactics" not in check_disable(options.settings.get("disable", ()))


def device_number(device: str | None) -> int:
    """The number of the GPU that ``"cuda:1"`` names; ``"cuda"`` and None are the first.

    Raises:
        UnavailableError: it names no GPU.
    """
    text = "cuda:0" if device in (None, "cuda") else str(device)
    kind, _, number = text.partition(":")
    if kind != "cuda" or not number.isdigit():
        raise UnavailableError(
            f"engine 'cuda': device {device!r} is unknown; it has cuda, cuda:0, cuda:1, ….\nDo: pytrt devices",
            device=device,
        )
    return int(number)


def planned_sizes(inputs: Sequence[TensorDesc], batches: Sequence[int]) -> list[dict[str, int]] | None:
    """Sizes of the inputs' free dims, by name, for each batch; None: other dims than the batch are free."""
    free = _free_dims(inputs)
    if not free <= _free_batches(inputs):
        return None
    return [dict.fromkeys(free, batch) for batch in (batches if free else (1,))]


def example_sizes(inputs: Sequence[TensorDesc]) -> dict[str, int]:
    """Sizes of the inputs' free dims, by name, with which a network is looked at while it is built."""
    batches = _free_batches(inputs)
    return {name: 1 if name in batches else _SIDE for name in _free_dims(inputs)}


def _free_dims(inputs: Sequence[TensorDesc]) -> set[str]:
    return {dim.name for desc in inputs for dim in desc.dims if isinstance(dim, SymbolicDim)}


def _free_batches(inputs: Sequence[TensorDesc]) -> set[str]:
    return {desc.dims[0].name for desc in inputs if desc.dims and isinstance(desc.dims[0], SymbolicDim)}
