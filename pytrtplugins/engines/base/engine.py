"""The base class of engines, with its checks."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from ...calibration import CalibrationTable, Calibrator
from ...errors import EngineError, ModelError, PrecisionError, UsageError
from ...model.decompose import check_claims
from ...model.proto import info_dims, info_dtype
from ...plugin.policy import HOST_FORMS, check_forms
from ...tensor import SMALL_DTYPES, Array, DType, TensorDesc
from ...utils.files import sha256_hex
from ...utils.forks import call_after_fork, fork_count, keep_until_exit
from ...utils.not_copyable import NotCopyable
from ...utils.notebook import object_html
from ...utils.numbers import MAX_SLOTS, check_int
from ...utils.optional import onnx
from ...utils.prefetch import map_async, map_in_contexts
from ...validation.dataflow import given_inputs
from ...version import __version__
from ...vision import Head
from .arithmetic import Arithmetic, arithmetic_of
from .context import Arrays, ExecutionContext
from .detection import DetectionContext
from .engine_file import EngineFile, write_engine_file
from .fusion import Part, part_of
from .host_detection import HostDetection
from .types import Availability, BuildOptions, ChosenKernel

__all__ = ["ALWAYS", "Engine"]

_MEASURED, ALWAYS = "measured", "always"

_PARENTS: weakref.WeakSet[Engine] = weakref.WeakSet()  # those of which a child can use nothing


class Engine(NotCopyable, ABC):
    """A network that is ready to run. Threads share it; each runs it through its own context.

    Subclasses fill in `_create_context`, and raise `BuildError` in their constructor for what they cannot run.

    Attributes:
        nests: Whether a plugin of a running network may run the same engine through another context.
        survives_fork: Whether a child process may use what its parent built before it forked.
        parents_alone: What a child process cannot use once its parent has, where it may not; for messages.
        dtypes: Element types that its inputs and outputs may have.
        plugin_forms: The forms that it runs, of `pytrtplugins.plugin.policy`: a plugin runs in the first that its class has.
        computes: Whether its outputs are those of the network; else they have their dims and types alone.
        queues_runs: Whether `run_async` queues a run on a device; else it starts a thread for each run that waits.
        foreign_operators: Whether the library below may know operators of anybody's domain.
        runs_contrib: Whether the library below computes onnxruntime's own operators, so that they need not be written with ONNX's.
        runs_blocks: Whether it runs files of onnxruntime's optimizer whose weights are in the layout of a CPU; see `check_layouts`.
        fast_build: Settings with which an engine of this kind is built fast, and runs slowly.
        asks_fast: Whether it builds one node so fast that it can be asked for each operator; else its error names all that it lacks.
        weights_location: Location that models in its files give for weights that they leave out; None: no weights are left out.
        choices: What was decided while building, and why, by what it is about.
        fallback: Why the engine computes in float32, although another precision was asked for; empty where it does not.
        batches: Sizes of a free batch that it was built for; empty where one is as good as another.
        float_precision: Precision of the layers that are left in float where INT8 or FP8 was asked for.
        options: Options of the build.
        inputs: Name, dims and dtype of each input; dims are symbolic where they are free.
        outputs: Description of each output.
        model_digest: SHA-256 of the model.

    Args:
        model: A prepared model; for INT8 with Q/DQ nodes.
        options: Options of the build.

    Raises:
        PrecisionError: the engine does not have the precision.
        BuildError: it cannot run the model.
        UsageError: it does not have a setting, or a plugin not the form that is asked for.
        ModelError: the model is broken, or claims more than memory can hold; or an input or output is not a tensor of numbers.
    """

    name: ClassVar[str]
    precisions: ClassVar[tuple[str, ...]] = ("fp32",)
    settings: ClassVar[tuple[str, ...]] = ()
    dtypes: ClassVar[tuple[DType, ...]] = tuple(dtype for dtype in DType if dtype not in SMALL_DTYPES)
    fast_build: ClassVar[Mapping[str, Any]] = {}
    asks_fast: ClassVar[bool] = True
    weights_location: ClassVar[str | None] = None
    nests: ClassVar[bool] = True
    plugin_forms: ClassVar[tuple[str, ...]] = HOST_FORMS
    computes: ClassVar[bool] = True
    queues_runs: ClassVar[bool] = False
    foreign_operators: ClassVar[bool] = False
    runs_contrib: ClassVar[bool] = False
    runs_blocks: ClassVar[bool] = False
    survives_fork: ClassVar[bool] = True
    parents_alone: ClassVar[str] = "the GPU"
    _load: ClassVar[Callable[[str | Path], Engine]]  # selection, which knows all engines, puts it here
    batches: tuple[int, ...] = ()
    float_precision: str = "fp32"
    instead: ClassVar[str] = (
        'engine.save("model.engine"), and pytrtplugins.load_engine("model.engine") where it is needed'
    )

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        self.check_precision(options.precision)
        self.check_settings(options.settings)
        model = check_claims(model, self.weights_location)
        check_forms(model, self.name, self.plugin_forms, options.plugins)
        self._model, self.options, self._forks = model, options, fork_count()
        self.choices: dict[str, str] = {}
        self.fallback = ""
        if not self.survives_fork:
            _PARENTS.add(self)
        self.inputs = tuple(map(self._describe, given_inputs(model.graph)))
        self.outputs = tuple(map(self._describe, model.graph.output))
        if not self.outputs:
            raise ModelError(
                "the model has no outputs, so there is nothing to compute.\nDo: model.graph.output.append(INFO) for a tensor that it gives"
            )

    # -- what an engine fills in -------------------------------------------------------------------------------------

    @abstractmethod
    def _create_context(self) -> ExecutionContext:
        """Make a context; weights are shared with the engine's other contexts."""

    @classmethod
    def availability(cls) -> Availability:
        """Whether this engine can be used here, and if not, why."""
        return Availability(cls.name, "", "")

    @classmethod
    def check_precision(cls, precision: str) -> None:
        """Require a precision that the engine has.

        Raises:
            PrecisionError: it does not; the message gives the alternatives.
        """
        if precision not in cls.precisions:
            raise PrecisionError(
                f"engine {cls.name!r} has no precision {precision!r}; it has {', '.join(cls.precisions)}.\n"
                + ("Causes: CPUs have no fast FP16 arithmetic; FP16 is for GPUs.\n" if precision == "fp16" else "")
                + "Do: "
                + " or ".join(f'precision="{name}"' for name in cls.precisions),
                precision=precision,
                engine=cls.name,
            )

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """Require settings that the engine has; that of a precision says whether it is compared with float by time.

        Raises:
            UsageError: it does not have one of them, or that of a precision is neither ``"measured"`` nor ``"always"``.
        """
        unknown = [name for name in settings if name not in cls.settings]
        if unknown:
            raise UsageError(
                f"engine {cls.name!r} has no setting {unknown[0]!r}; it has {', '.join(cls.settings) or 'none'}",
                setting=unknown[0],
            )
        for precision in set(cls.precisions) & set(settings):
            if settings[precision] not in (_MEASURED, ALWAYS):
                raise UsageError(
                    f"setting {precision}: expected {_MEASURED!r} or {ALWAYS!r}, found {settings[precision]!r}",
                    setting=precision,
                )

    @classmethod
    def calibrated(
        cls, model: onnx.ModelProto, options: BuildOptions, calibration: Calibrator | CalibrationTable | str | Path
    ) -> Engine | None:
        """Build in INT8 from a float model with the library's own calibration; None if the engine takes Q/DQ."""
        return None

    @classmethod
    def build(cls, model: onnx.ModelProto, options: BuildOptions, progress: bool = False) -> Engine:
        """Build the engine of a prepared model; ``progress``: show a progress bar on a terminal if it takes long."""
        return cls(model, options)

    @classmethod
    def build_quantized(
        cls, quantized: onnx.ModelProto, model: onnx.ModelProto, options: BuildOptions, progress: bool = False
    ) -> Engine:
        """Build the engine of a model that `build` quantized; ``model`` is its float form, which some engines may prefer."""
        return cls.build(quantized, options, progress)

    @classmethod
    def restore(cls, file: EngineFile, options: BuildOptions) -> Engine:
        """Build the engine from an engine file, which holds the model and the `payload` at the time of saving."""
        return cls(file.model(), options)

    def payload(self) -> bytes:
        """The library's compiled form of the model, saved next to it; empty if it is rebuilt from the model."""
        return b""

    @classmethod
    def quantize_options(cls, precision: str = "int8", rest: str = "fp32") -> dict[str, Any]:
        """Options of `pytrtplugins.passes.quantize` that this engine needs on this machine.

        Args:
            precision: ``"int8"`` or ``"fp8"``.
            rest: Type of what is not quantized.
        """
        return {}

    def requirements(self) -> dict[str, Any]:
        """Requirements on a machine to load the saved engine; stored in its metadata, checked by `check_requirements`."""
        return {}

    @classmethod
    def check_requirements(cls, requirements: Mapping[str, Any], device: str | None = None) -> str:
        """Why an engine with these requirements cannot be loaded on a device, or where it was built; empty when it can."""
        return ""

    @classmethod
    def always(cls, precision: str) -> dict[str, Any]:
        """Settings with which the engine computes in a precision even where float is faster: those that measure accuracy need them."""
        return {precision: ALWAYS} if precision in set(cls.precisions) & set(cls.settings) else {}

    # -- what callers use --------------------------------------------------------------------------------------------

    @property
    def model(self) -> onnx.ModelProto:
        """The ONNX model as built, after all passes."""
        return self._model

    @property
    def model_without_weights(self) -> onnx.ModelProto:
        """The model as built, to look at its nodes: in an engine that was loaded its weights may have no values."""
        return self._model

    @property
    def precision(self) -> str:
        """The precision that the engine was built for; `arithmetic` says what its layers compute in."""
        return self.options.precision

    @property
    def arithmetic(self) -> Arithmetic:
        """The precision in which the layers compute."""
        return arithmetic_of(self.model_without_weights, self.precision, self.fallback, self.float_precision)

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model as built."""
        return sha256_hex(self.model.SerializeToString(deterministic=True))

    def parts(self) -> tuple[Part, ...]:
        """The kernels of the engine in execution order, as far as its library reports them."""
        return tuple(part_of(node.name, node.op_type, [node]) for node in self.model_without_weights.graph.node)

    def chosen_kernels(self) -> tuple[ChosenKernel, ...]:
        """Kernels that were selected by timing during the build; empty if the library selects them without a report."""
        return ()

    def weight_bytes(self) -> int | None:
        """Bytes of the network's constants on the engine's device; None if the library does not report them."""
        return None

    def note_fallback(self, reason: str) -> None:
        """Record that the engine computes in float although another precision was requested."""
        rest = "float16" if self.float_precision == "fp16" else "float32"
        self.fallback, self.choices[self.precision] = reason, f"{rest}: {reason}"

    def create_context(self) -> ExecutionContext:
        """Make the state for one thread's runs; a context manager.

        Raises:
            EngineError: the process was forked since, and the engine's device cannot be used in a child.
        """
        self.check_process()
        return self._create_context()

    def check_process(self) -> None:
        """Require the process that the engine was made in, where its library cannot be used in a child.

        Raises:
            EngineError: the process was forked since.
        """
        if self._forks != fork_count() and not self.survives_fork:
            raise EngineError(
                f"{self!r}: it was made before this process was forked, and {self.parents_alone} cannot be used across a fork.\n"
                f"Do: make the engine in the child; the parent must not use {self.parents_alone} before the fork, as with"
                ' multiprocessing\'s "spawn"'
            )

    def usable(self) -> bool:
        """Whether runs may still succeed: False once an error has ended what the engine has on its device, until the process ends."""
        return True

    def stream(
        self,
        source: Iterable[Any],
        *,
        prepare: Callable[[Any], Mapping[str, Array]] | None = None,
        slots: int = 2,
    ) -> Iterator[Arrays]:
        """Run over an iterable as a software pipeline: while one run computes, the next is read, prepared, copied.

        Each slot has a context of its own, so a stream and page-locked memory of its own: copies in, the network and copies out
        of different slots overlap. At most ``slots`` items are taken ahead of the results. What is prepared has threads; inputs
        that are there already are queued by the caller's thread, since that takes less time than to wake another.

        Args:
            source: Inputs by name, or anything that ``prepare`` makes inputs of.
            prepare: Called in the slot's thread: read a file, preprocess.
            slots: How many runs overlap, 1 to 256; each has a context and a thread of its own.

        Yields:
            The outputs of each item, in the order of the items.

        Raises:
            UsageError: ``slots`` is outside, at once.
            Exception: what the source, ``prepare`` or a run raised, at its item's turn; results before it are given first.
        """
        contexts = (self.create_context() for _ in range(check_int("stream: slots", slots, 1, MAX_SLOTS)))
        if prepare is None:
            return map_async(
                ExecutionContext.run_async, source, contexts=contexts, finish=lambda _, item, outputs: outputs
            )
        prepared = prepare

        def work(context: ExecutionContext, item: Any) -> Arrays:
            return context.run(prepared(item))

        return map_in_contexts(work, source, contexts=contexts)

    def create_detection_context(
        self,
        heads: Sequence[Head],
        size: tuple[int, int],
        mode: str = "letterbox",
        max_detections: int = 200,
        batch: int | None = None,
    ) -> DetectionContext:
        """Make the state for one thread's runs from images to boxes; see `DetectionContext`."""
        return HostDetection(self, heads, size, mode, max_detections, batch)

    def save(self, path: str | Path) -> None:
        """Write an engine file (docs/reference/format.md), whole or not at all."""
        metadata = {
            "engine": self.name,
            "created_by": f"pytrtplugins {__version__}",
            "built_with": self.availability().details,
            "options": asdict(self.options),
            "computes": self.arithmetic.precision,
            "requirements": self.requirements(),
        }
        write_engine_file(path, metadata, self.model.SerializeToString(deterministic=True), self.payload())

    @staticmethod
    def load(path: str | Path) -> Engine:
        """Load an engine file; the same as `pytrtplugins.load_engine`."""
        return Engine._load(path)

    def _describe(self, info: onnx.ValueInfoProto) -> TensorDesc:
        desc = TensorDesc(info.name, info_dims(info), info_dtype(info))
        if desc.dtype not in self.dtypes:
            raise ModelError(
                f"tensor {desc.name!r} is of the element type {desc.dtype}; inputs and outputs of engine {self.name!r} are of "
                f"{', '.join(self.dtypes)}",
                tensor=desc.name,
                dtype=desc.dtype,
            )
        return desc

    def __repr__(self) -> str:
        """Name, precision, inputs and outputs."""
        inputs, outputs = (", ".join(map(str, descs)) for descs in (self.inputs, self.outputs))
        return f"<{self.name} engine, {self.arithmetic}: {inputs} -> {outputs}>"

    def _repr_html_(self) -> str:
        sides = (("input", self.inputs), ("output", self.outputs))
        rows = [
            (side, desc.name, desc.dtype, " x ".join(map(str, desc.dims))) for side, descs in sides for desc in descs
        ]
        notes = [f"{about}: {choice}" for about, choice in self.choices.items()]
        return object_html(f"engine {self.name}, {self.arithmetic}", ("", "name", "type", "dims"), rows, notes)


def _leave_parent() -> None:
    for engine in list(_PARENTS):
        keep_until_exit(engine)


call_after_fork(_leave_parent)
