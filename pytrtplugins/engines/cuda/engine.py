"""The engine for NVIDIA GPUs: fused ONNX nodes on cuDNN, plugins and handwritten kernels, one CUDA graph a run."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from ...errors import BuildError, DimsError, MissingExtraError, UnavailableError
from ...model.ir import to_ir, to_proto
from ...model.proto import node_name
from ...plugin.policy import GPU_FORMS
from ...tensor import DType
from ...utils.optional import ir, onnx
from ...utils.override import override
from ...validation import validated
from ..base.context import ExecutionContext
from ..base.detection import DetectionContext
from ..base.engine import Engine
from ..base.engine_file import EngineFile
from ..base.failures import as_error
from ..base.fusion import Part
from ..base.plugins import forms_run
from ..base.types import Availability, BuildOptions, ChosenKernel
from .conv.cache import TacticCache
from .conv.cublaslt import CublasLtProvider
from .conv.cudnn import CudnnProvider
from .conv.cudnn_frontend import check_cudnn, cudnn_versions
from .conv.depthwise import DepthwiseProvider
from .conv.problem import ConvProvider, DirectProvider
from .conv.search_time import SearchTime
from .conv.selector import ConvSelector, LayerKernel
from .conv.skinny_gemm import SkinnyGemmProvider
from .conv.timer import Timer
from .device.attention import MATRIX_UNITS, AttentionMaker, attention
from .device.cublaslt import cublaslt_version
from .device.device import CudaDevice
from .device.generated import largest_cluster
from .device.source import kernels_digest
from .int8_choice import build_fastest
from .lower.pipeline import check_disable, lower
from .plan.fallbacks import fallbacks
from .plan.parts import parts_of
from .plan.plan import Plan
from .plan.planner import make_plan
from .plan.weights import WEIGHTS_LOCATION, take_weights, without_weights
from .run.context import CudaContext
from .run.cudnn_attention import CudnnAttention
from .run.detection import CudaDetection
from .run.execution import Execution
from .run.network_timer import NetworkClock, choose_in_network
from .saved import SavedPlan
from .settings import (
    CUDNN_SECONDS,
    PLACEMENT,
    batches,
    check_fp8,
    cudnn_seconds,
    device_number,
    example_sizes,
    float_type,
    holds_fp8,
    planned_sizes,
)

if TYPE_CHECKING:
    from ...vision import Head

__all__ = ["CudaEngine"]

_DEVICE = "device"
FORMAT = 9
"""Of what engine files and files of choices hold: plans, packed weights, tactics. It goes up with what they mean."""


class CudaEngine(Engine):
    """cuDNN and handwritten kernels, NHWC inside, one CUDA graph for each context and shape.

    Settings: ``disable``, names of optimizations to leave out (`pytrtplugins.engines.cuda.lower.pipeline.OPTIONAL_STEPS`);
    ``batch``, batches for which kernels are chosen while building (default 1, if the plugins accept it); ``float``, the
    element type of an INT8 or FP8 engine's float layers, ``"float16"`` by default; ``cudnn_seconds``, how long cuDNN's plans
    may be built and timed for each batch (default 45; `choices` says where that cut a search short); ``int8``, ``"always"`` to
    compute in INT8 without comparing it with float. ``device`` is ``"cuda"`` or ``"cuda:1"``.

    Args:
        model: A prepared model; of an engine file the one without weights.
        options: How to build.
        progress: Show a progress bar while kernels are chosen.
        saved: The engine file, and what it keeps beside the model.

    Attributes:
        device: The GPU.
        disabled: Optimizations that were left out, and kernels of libraries that are not installed.
        selector: Which kernel runs which convolution.
        batches: For which kernels are chosen while building.
    """

    name: ClassVar[str] = "cuda"
    plugin_forms: ClassVar[tuple[str, ...]] = GPU_FORMS
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "tf32", "fp16", "int8", "fp8")
    settings: ClassVar[tuple[str, ...]] = ("disable", "batch", "float", "cudnn_seconds", "int8")
    fast_build: ClassVar[Mapping[str, Any]] = {
        "disable": ("tactics", "graph", "handwritten-kernels", "cudnn-kernels", "cublaslt-kernels")
    }
    dtypes: ClassVar[tuple[DType, ...]] = tuple(DType)
    queues_runs: ClassVar[bool] = True
    survives_fork: ClassVar[bool] = False
    weights_location: ClassVar[str | None] = WEIGHTS_LOCATION

    def __init__(
        self,
        model: onnx.ModelProto,
        options: BuildOptions,
        progress: bool = False,
        saved: tuple[EngineFile, SavedPlan] | None = None,
    ) -> None:
        super().__init__(model, options)
        self.disabled = check_disable(options.settings.get("disable", ()))
        if not cublaslt_version():
            self.disabled |= {"cublaslt-kernels"}
        self.float_type = float_type(options)
        self.float_precision = "fp16" if self.float_type is DType.FLOAT16 else "fp32"
        self.device = CudaDevice(device_number(options.device))
        if largest_cluster(self.device) == 1:
            self.disabled |= {"squeeze-excite"}
        if options.precision == "fp8" or holds_fp8(model):
            check_fp8(self.device)
        self._file = None if saved is None else saved[0]
        plan = None if saved is None else saved[1]
        with as_error("engine 'cuda' cannot build the model", self.name):
            self._build(plan, options, progress)

    def _build(self, plan: SavedPlan | None, options: BuildOptions, progress: bool) -> None:
        if plan is None:
            self._graph = self._lower()
            self._weights = take_weights(self._graph)
        else:
            graph = onnx.ModelProto.FromString(plan.graph)
            self._graph = to_ir(validated(graph, weights_location=WEIGHTS_LOCATION), checked=True)
        self.choices.update(forms_run(self._model, self._graph, self.plugin_forms, options.plugins))
        self.capturing = threading.Lock()
        with self.device.xp.cuda.Device(self.device.number):
            self._cublaslt = None if "cublaslt-kernels" in self.disabled else CublasLtProvider(self.device)
            self.selector = self._selector(plan)
        self._attention = self._attention_maker()
        self.batches = batches(options)
        self._plan_ahead(options, progress)
        self.selector.built = True

    def _plan_ahead(self, options: BuildOptions, progress: bool) -> None:
        """Choose kernels for the batches that are named; with other free dims only look whether all operators are there."""
        sizes = self.planned_sizes()
        if sizes is None:
            try:
                make_plan(self._graph, example_sizes(self.inputs), self.disabled, self.options.plugins)
            except DimsError:
                pass  # other dims may do
            except BuildError as error:
                if "op" in error.facts:
                    raise
            return
        for each in sizes:
            try:
                self.execution(each, progress).close()
            except DimsError:
                if not each or "batch" in options.settings:
                    raise
                # nobody asked for this batch, and a plugin refuses it: kernels are chosen in the first run

    def planned_sizes(self) -> list[dict[str, int]] | None:
        """Sizes of the free dims for which kernels are chosen while building; None: dims other than the batch are free."""
        return planned_sizes(self.inputs, self.batches)

    @functools.cached_property
    def _weights(self) -> dict[str, npt.NDArray[Any]]:
        """Weights of convolutions, by name; an engine that was loaded reads them only when a new shape needs them."""
        return take_weights(self._lower())

    @property
    def model(self) -> onnx.ModelProto:
        """The ONNX model as built, after all passes; of an engine that was loaded, read from its file.

        Raises:
            EngineFileError: that file was changed.
            FileNotFoundError: it is not there any more.
        """
        return self._model if self._file is None else self._file.model()

    @property
    def lowered(self) -> onnx.ModelProto:
        """The fused model, made anew."""
        return to_proto(self._lower())

    @classmethod
    @override
    def quantize_options(cls, precision: str = "int8", rest: str = "fp32") -> dict[str, Any]:
        return {"placement": PLACEMENT}

    @classmethod
    @override
    def build(cls, model: onnx.ModelProto, options: BuildOptions, progress: bool = False) -> Engine:
        return cls(model, options, progress)

    @classmethod
    @override
    def build_quantized(
        cls, quantized: onnx.ModelProto, model: onnx.ModelProto, options: BuildOptions, progress: bool = False
    ) -> Engine:
        """Build the engine of a quantized model, with layers in float that are not faster in INT8."""
        return build_fastest(functools.partial(cls, progress=progress), quantized, model, options, progress)

    @classmethod
    def availability(cls) -> Availability:
        """Whether there are a GPU, CuPy and cuDNN."""
        try:
            device, frontend = CudaDevice(), check_cudnn()
        except (MissingExtraError, UnavailableError) as error:
            return Availability(cls.name, str(error), "")
        found = f"cudnn-frontend {frontend}, CuPy {device.xp.__version__} on {device.model}"
        return Availability(
            cls.name, "", f"{found}, driver for CUDA {device.driver // 1000}.{device.driver % 1000 // 10}"
        )

    @classmethod
    def restore(cls, file: EngineFile, options: BuildOptions) -> Engine:
        """Make the engine of an engine file: with the kernels chosen when it was built, and weights packed for them."""
        plan = SavedPlan.from_bytes(file.payload())
        model = onnx.ModelProto.FromString(plan.model)
        return cls(model, options, saved=(file, plan))

    def payload(self) -> bytes:
        """The lowered model, the chosen kernels, and the weights packed for them."""
        model, graph = (
            each.SerializeToString(deterministic=True) for each in (without_weights(self._model), to_proto(self._graph))
        )
        return SavedPlan(model, graph, self.selector.choices, self.selector.packed()).to_bytes(_facts(self.device))

    def requirements(self) -> dict[str, Any]:
        """Which GPU, its model, the driver's major version, the format of what this engine saves, and its kernels."""
        return {_DEVICE: f"cuda:{self.device.number}", **_requirements(self.device)}

    @classmethod
    def check_requirements(cls, requirements: Mapping[str, Any], device: str | None = None) -> str:
        """Why an engine with these requirements cannot be loaded on a GPU, or on that which it was built for; empty when it can."""
        number = device_number(device or requirements.get(_DEVICE))
        wrong = [
            f"{name}: built for {requirements.get(name)!r}, here is {value!r}"
            for name, value in _requirements(CudaDevice(number)).items()
            if requirements.get(name) != value
        ]
        return "; ".join(wrong)

    def execution(
        self,
        sizes: Mapping[str, int],
        progress: bool = False,
        outside: Callable[[Plan], Mapping[str, Any]] | None = None,
    ) -> Execution:
        """Buffers and launches for inputs whose free dims have these sizes; kernels are chosen where they are not yet.

        Args:
            sizes: By the dims' names.
            progress: Show a progress bar while kernels are chosen.
            outside: Gives the arrays of the caller's that tensors of the plan lie in, by the tensors' names.
        """
        plan = make_plan(self._graph, sizes, self.disabled, self.options.plugins)
        self.choices.update(fallbacks(plan))
        if plan.tail is not None:
            nodes, first = plan.tail.nodes, f"{node_name(plan.tail.nodes[0])!r} ({plan.tail.nodes[0].op_type})"
            self.choices["run node by node"] = f"{len(nodes)} nodes from {first} on, since only a run tells their dims"
        with self.device.xp.cuda.Device(self.device.number), self.device.explaining_memory():
            self.selector.choose(plan, progress)
            self._report_cut()
            if not (self._file or self.selector.built or self.disabled & {"tactics", "network-timing"}):
                self._choose_in_network(plan, progress)
            return self._execution(plan, self.selector, outside(plan) if outside else {})

    def _report_cut(self) -> None:
        """Say for which convolutions cuDNN's plans were not all tried."""
        limit = self.selector.search_time
        if limit.cut:
            self.choices["plans of cuDNN"] = (
                f"not all were tried for {len(limit.cut)} convolutions (cudnn_seconds={limit.seconds:g}): {'; '.join(limit.cut)}"
            )

    def _execution(
        self, plan: Plan, selector: ConvSelector, outside: Mapping[str, Any] = MappingProxyType({})
    ) -> Execution:
        product = None if self._cublaslt is None else self._cublaslt.product
        return Execution(self.device, plan, selector.launch, outside, product, self._attention)

    def _choose_in_network(self, plan: Plan, progress: bool) -> None:
        clock = NetworkClock(self.device)

        def make(selector: ConvSelector) -> Execution:
            execution = self._execution(plan, selector)
            clock.prepare(execution)
            return execution

        with self.capturing:
            choose_in_network(plan, self.selector, make, clock, progress)

    def create_detection_context(
        self,
        heads: Sequence[Head],
        size: tuple[int, int],
        mode: str = "letterbox",
        max_detections: int = 200,
        batch: int | None = None,
    ) -> DetectionContext:
        """Make the state for one thread's runs from image bytes to boxes, all of it on the GPU, in one launch."""
        return CudaDetection(self, heads, size, mode, max_detections, batch)

    @override
    def usable(self) -> bool:
        return self.device.usable()

    @override
    def weight_bytes(self) -> int | None:
        return self.selector.weight_bytes()

    @override
    def parts(self) -> tuple[Part, ...]:
        return parts_of(self._graph, self.inputs, self.disabled, self.options.plugins)

    def tactics(self) -> list[LayerKernel]:
        """The kernel of each convolution, one row for each that differs."""
        return self.selector.kernels()

    @override
    def chosen_kernels(self) -> tuple[ChosenKernel, ...]:
        return tuple(
            ChosenKernel(row.layers, row.problem, row.choice.title, row.choice.microseconds, row.choice.rivals)
            for row in self.tactics()
        )

    def _create_context(self) -> ExecutionContext:
        return CudaContext(self)

    def _lower(self) -> ir.Model:
        return lower(self.model, self.disabled, self.options.plugins, self.float_type)

    def _cache(self) -> TacticCache:
        facts = _facts(self.device)
        missing = self.disabled & {"handwritten-kernels", "cudnn-kernels", "cublaslt-kernels"}
        if missing:  # a choice among fewer is none among all
            facts["disable"] = ",".join(sorted(missing))
        seconds = cudnn_seconds(self.options)
        if seconds != CUDNN_SECONDS and "cudnn-kernels" not in self.disabled:  # nor is one in less time
            facts["cudnn_seconds"] = seconds
        return TacticCache(facts)

    def _attention_maker(self) -> AttentionMaker:
        own = "handwritten-kernels" not in self.disabled and self.device.capability >= MATRIX_UNITS
        plain = functools.partial(attention, matrix_units=own)
        return plain if "cudnn-kernels" in self.disabled else CudnnAttention(self.device, plain, has_tiles=own)

    def _selector(self, plan: SavedPlan | None) -> ConvSelector:
        direct, time = DirectProvider(self.device), SearchTime(cudnn_seconds(self.options))
        providers: list[ConvProvider] = [direct]
        if "cudnn-kernels" not in self.disabled:
            has_rivals = "handwritten-kernels" not in self.disabled and self.device.capability >= 80
            providers = [CudnnProvider(self.device, has_rivals, time), direct]
        if self._cublaslt is not None:
            providers = [self._cublaslt, *providers]
        if "handwritten-kernels" not in self.disabled:
            from .conv.handwritten import HandwrittenProvider
            from .conv.stem import StemProvider  # where they are used, since they load the driver

            families = (("halo", 16), ("hopper", 12), ("mma", 6), ("simt", 12))
            handwritten = [HandwrittenProvider(self.device, family, count) for family, count in families]
            depthwise = DepthwiseProvider(self.device, self.device.multiprocessors)
            providers = [SkinnyGemmProvider(self.device), *providers]
            providers = [StemProvider(self.device), depthwise, *handwritten, *providers]
        timed = "tactics" not in self.disabled
        packed = plan.packed if plan is not None else {}
        return ConvSelector(
            self.device,
            providers,
            plan.choices if plan is not None else None,
            self._cache if timed else None,
            Timer(self.device, direct) if timed else None,
            tf32=self.precision == "tf32",
            weights=lambda name: self._weights[name],
            packed={
                name: {form: self.device.upload(array) for form, array in forms.items()}
                for name, forms in packed.items()
            },
            is_right=lambda *asked: Timer(self.device, direct).is_right(*asked),
            search_time=time,
        )


def _requirements(device: CudaDevice) -> dict[str, Any]:
    return {"gpu": device.model, "driver": device.driver // 1000, "format": FORMAT, "kernels": kernels_digest()}


def _facts(device: CudaDevice) -> dict[str, str | int]:
    facts: dict[str, str | int] = {"gpu": device.model, "driver": device.driver, **cudnn_versions()}
    return {**facts, "cublaslt": cublaslt_version(), "format": FORMAT, "kernels": kernels_digest()}
