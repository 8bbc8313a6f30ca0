"""The engine for NVIDIA GPUs: fused ONNX nodes on cuDNN, plugins and kernels of our own, one CUDA graph a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import MissingExtraError, UnavailableError, UsageError
from ...tensor import Array, DType, SymbolicDim
from ..base import Availability, BuildOptions, Engine
from ..container import EngineFile
from ..context import Arrays, ExecutionContext
from ..detection import DetectionContext
from .context import CudnnContext
from .conv import ConvProvider, DirectProvider
from .cudnn_conv import CudnnProvider, cudnn_versions
from .detection import CudnnDetection
from .device import CudaDevice
from .execution import Execution
from .lower import check_without, lower
from .planner import make_plan
from .select_conv import ConvSelector
from .stream import stream
from .tactics import Choice, TacticCache, decode, encode
from .timer import Timer

if TYPE_CHECKING:
    import onnx

    from ...vision import Head

__all__ = ["CudnnEngine"]

_FORMAT = 1


class CudnnEngine(Engine):
    """cuDNN and kernels of our own, NHWC inside, one CUDA graph for each context and shape.

    Settings: ``without``, names of optimizations to leave out (`pytrtplugins.engines.cudnn.lower.OPTIONAL_STEPS`);
    ``batch``, batches for which kernels are chosen while building (default 1); ``float``, the element type of an INT8
    engine's float layers, ``"float16"`` by default. ``device`` is ``"cuda"`` or ``"cuda:1"``.

    Attributes:
        device: The GPU.
        lowered: The fused model.
        without: Optimizations that were left out.
        selector: Which kernel runs which convolution.
        batches: For which kernels are chosen while building.
    """

    name: ClassVar[str] = "cudnn"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "tf32", "fp16", "int8")
    settings: ClassVar[tuple[str, ...]] = ("without", "batch", "float")

    def __init__(
        self, model: onnx.ModelProto, options: BuildOptions, known: Mapping[str, Choice] | None = None
    ) -> None:
        super().__init__(model, options)
        self.without = check_without(options.settings.get("without", ()))
        self.float_type = _float_type(options)
        self.device = CudaDevice(_device_number(options.device))
        self.lowered = lower(model, self.without)
        self.capturing = threading.Lock()
        self.selector = self._selector(known)
        self.batches = _batches(options)
        for batch in self.batches:
            free = {dim.name for desc in self.inputs for dim in desc.dims if isinstance(dim, SymbolicDim)}
            if free or batch == self.batches[0]:
                self.execution(dict.fromkeys(free, batch)).close()

    @classmethod
    def availability(cls) -> Availability:
        """Whether there are a GPU, CuPy and cuDNN."""
        try:
            device, versions = CudaDevice(), cudnn_versions()
        except (MissingExtraError, UnavailableError) as error:
            return Availability(cls.name, str(error), "")
        found = f"cuDNN {versions['cudnn']}, CuPy {device.xp.__version__} on {device.model}"
        return Availability(
            cls.name, "", f"{found}, driver for CUDA {device.driver // 1000}.{device.driver % 1000 // 10}"
        )

    @classmethod
    def restore(cls, file: EngineFile, options: BuildOptions) -> Engine:
        """Make the engine of an engine file, with the tactics chosen when it was built."""
        return cls(file.model(), options, decode(file.payload().decode()))

    def payload(self) -> bytes:
        """The chosen tactics."""
        return encode(self.selector.choices, _facts(self.device)).encode()

    def requirements(self) -> dict[str, Any]:
        """The GPU's model, the driver's major version and the format of what this engine saves."""
        return {"gpu": self.device.model, "driver": self.device.driver // 1000, "format": _FORMAT}

    @classmethod
    def check_requirements(cls, requirements: Mapping[str, Any]) -> str:
        """Why an engine with these requirements cannot be loaded here; empty when it can."""
        device = CudaDevice()
        found = {"gpu": device.model, "driver": device.driver // 1000, "format": _FORMAT}
        wrong = [
            f"{name}: built for {requirements.get(name)!r}, here is {value!r}"
            for name, value in found.items()
            if requirements.get(name) != value
        ]
        return "; ".join(wrong)

    def execution(self, sizes: Mapping[str, int]) -> Execution:
        """Buffers and launches for inputs whose free dims have these sizes."""
        plan = make_plan(self.lowered, sizes, self.float_type, self.without)
        with self.device.xp.cuda.Device(self.device.number):
            return Execution(self.device, plan, self.selector.launch)

    def stream(
        self,
        source: Iterable[Any],
        *,
        prepare: Callable[[Any], Mapping[str, Array]] | None = None,
        slots: int = 2,
    ) -> Iterator[Arrays]:
        """Run over an iterable so that reading, copies and the network overlap; see `pytrtplugins.engines.cudnn.stream.stream`."""
        return stream(self, source, prepare=prepare, slots=slots)

    def create_detection_context(
        self, heads: Sequence[Head], size: tuple[int, int], mode: str = "letterbox", most: int = 200
    ) -> DetectionContext:
        """Make the state for one thread's runs from photo bytes to boxes, all of it on the GPU, in one launch."""
        return CudnnDetection(self, heads, size, mode, most)

    def tactics(self) -> list[tuple[str, Choice]]:
        """Each convolution's problem and what was chosen for it."""
        return sorted(self.selector.choices.items())

    def _create_context(self) -> ExecutionContext:
        return CudnnContext(self)

    def _selector(self, known: Mapping[str, Choice] | None) -> ConvSelector:
        direct = DirectProvider(self.device)
        providers: list[ConvProvider] = [direct]
        if "cudnn-kernels" not in self.without:
            providers = [CudnnProvider(self.device), direct]
        if "own-kernels" not in self.without:
            from .first_conv import FirstProvider  # where they are used, since they load the driver
            from .own_conv import OwnProvider

            own = [OwnProvider(self.device, "hopper"), OwnProvider(self.device, "mma", most=6)]
            providers = [FirstProvider(self.device), *own, *providers]
        timed = "tactics" not in self.without
        facts = _facts(self.device)
        if missing := self.without & {"own-kernels", "cudnn-kernels"}:
            facts["without"] = ",".join(
                sorted(missing)
            )  # a choice among fewer does not take the place of one among all
        return ConvSelector(
            self.device,
            providers,
            known,
            TacticCache(facts) if timed else None,
            Timer(self.device, direct) if timed else None,
            tf32=self.precision == "tf32",
        )


def _facts(device: CudaDevice) -> dict[str, str | int]:
    return {"gpu": device.model, "driver": device.driver, **cudnn_versions()}


def _float_type(options: BuildOptions) -> DType:
    if options.precision == "int8":
        chosen = options.settings.get("float", "float16")
        if chosen not in ("float16", "float32"):
            raise UsageError(f"engine 'cudnn': float: expected float16 or float32, found {chosen!r}", setting="float")
        return DType(chosen)
    return DType.FLOAT16 if options.precision == "fp16" else DType.FLOAT32


def _batches(options: BuildOptions) -> tuple[int, ...]:
    given = options.settings.get("batch", (1,))
    batches = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not batches or not all(type(batch) is int and batch > 0 for batch in batches):
        raise UsageError(f"engine 'cudnn': batch: expected whole numbers from 1, found {given!r}", setting="batch")
    return batches


def _device_number(device: str | None) -> int:
    text = "cuda:0" if device in (None, "cuda") else str(device)
    kind, _, number = text.partition(":")
    if kind != "cuda" or not number.isdigit():
        raise UnavailableError(
            f"engine 'cudnn': device {device!r} is unknown; it has cuda, cuda:0, cuda:1, ….\nDo: pytrt devices",
            device=device,
        )
    return int(number)
