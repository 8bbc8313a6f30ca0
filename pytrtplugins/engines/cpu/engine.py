"""The default engine for CPUs: OpenVINO, with plugins inside."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..._dataflow import walk
from ..._optional import require
from ...decompose import inline_plugins
from ...errors import BuildError, EngineError, ExecutionError, MissingExtraError, UnavailableError
from ...onnx_node import from_node, is_plugin_node
from ...passes import DropRepeatedPairs, FloatPads, Placement, UnsignedActivations, to_ir, to_proto
from ..base import Arrays, Availability, BuildOptions, ExecutionContext
from ..cpu_features import cpu_features, default_threads, describe_cpu
from ..failures import explaining
from ..host import HostEngine
from ..int8 import signed_activations
from ..timing import run_seconds
from .plugin_errors import PluginErrors

if TYPE_CHECKING:
    import onnx

    from .plugin_op import PluginHost

__all__ = ["PLACEMENT", "CpuEngine"]

PLACEMENT = Placement(unsigned=True)
"""OpenVINO's convolutions take in what follows them, and give int8 or float: the common form, but for zero points of 0."""

_log = logging.getLogger(__name__)
_NATIVE_BF16 = {"bf16", "amx-bf16"}
_BF16_GAIN = 0.95  # bf16 must take less than this part of float32's time to be chosen


class CpuEngine(HostEngine):
    """OpenVINO on the CPU.

    Plugins with a decomposition are written out with standard operators, so that no Python runs per layer; the others run
    through their `enqueue`, which calls `compute` by default. Float layers compute in float32, whatever hint OpenVINO would
    follow; with ``precision="bf16"`` they compute in bf16 where the CPU has it and where that was measured to be faster.

    """

    name: ClassVar[str] = "cpu"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16", "int8")
    nests: ClassVar[bool] = False

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        super().__init__(model, options)
        if options.precision == "bf16" and not cpu_features() & _NATIVE_BF16:
            raise UnavailableError(
                f"engine 'cpu': this CPU has no bf16 arithmetic: {describe_cpu()}. OpenVINO would emulate it, several times "
                'slower.\nDo: precision="fp32" or precision="int8"'
            )
        self._hosts: dict[str, PluginHost] = {}
        self._errors = PluginErrors()
        self._compiled = self._compile()
        known = set[str]().union(*(port.get_names() for port in self._compiled.inputs))
        self._input_names = [desc.name for desc in self.inputs if desc.name in known]  # not those that nothing reads
        self._output_names = [desc.name for desc in self.outputs]
        weakref.finalize(self, _close_hosts, tuple(self._hosts.values()))

    @classmethod
    def availability(cls) -> Availability:
        """Whether OpenVINO is installed, and on which CPU it runs."""
        try:
            openvino = require("openvino", extra="cpu", feature="engine 'cpu'")
        except MissingExtraError as error:
            return Availability(cls.name, str(error), "")
        version = openvino.__version__.partition("-")[0]
        return Availability(cls.name, "", f"OpenVINO {version} on {describe_cpu()}")

    @classmethod
    def quantize_options(cls) -> dict[str, Any]:
        """Where OpenVINO's int8 kernels want Q/DQ; see `PLACEMENT`."""
        return {**super().quantize_options(), "placement": PLACEMENT}

    def _create_context(self) -> ExecutionContext:
        return CpuContext(self)

    def _compile(self) -> Any:
        openvino = require("openvino", extra="cpu", feature="engine 'cpu'")
        model, extensions = self._openvino_form()
        signed = signed_activations(model)
        if signed and not self.float_reason:
            self.float_reason = f"{signed[0]!r} reaches the network as int8, which OpenVINO computes wrongly in places"
        if self.float_reason:
            self.choices["int8 layers"] = f"float32 between Q and DQ: {self.float_reason}"
        core = openvino.Core()
        with self._explaining("OpenVINO cannot build the model", BuildError):
            for extension in extensions:
                core.add_extension(extension)
            network = core.read_model(model.SerializeToString(), b"")
            compiled = core.compile_model(network, "CPU", self._config("f32"))
            if self.precision == "bf16":
                compiled = self._faster_of(compiled, core.compile_model(network, "CPU", self._config("bf16")))
        return compiled

    def _config(self, float_type: str) -> dict[str, Any]:
        return {
            "INFERENCE_PRECISION_HINT": float_type,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": self.options.threads or default_threads(),
            **({"LP_TRANSFORMS_MODE": "NO"} if self.float_reason else {}),
        }

    def _openvino_form(self) -> tuple[onnx.ModelProto, list[Any]]:
        """The model with decompositions written out and unsigned activations, and the extensions for what is left."""
        model = inline_plugins(self.model)
        left = [node for node in walk(model.graph.node) if is_plugin_node(node)]
        ir_model = to_ir(model)
        changes = [step(ir_model).modified for step in (DropRepeatedPairs(), UnsignedActivations(), FloatPads())]
        if any(changes):
            model = to_proto(ir_model)
            left = [node for node in walk(model.graph.node) if is_plugin_node(node)]
        if not left:
            return model, []
        from .plugin_op import PluginHost, conversion

        helper = require("onnx.helper", extra="onnx")
        for index, node in enumerate(left):
            self._hosts[str(index)] = PluginHost(from_node(node), node.name or node.op_type, self._errors, self)
            node.attribute.append(helper.make_attribute("pytrtplugins_host", str(index)))
        types = sorted({(node.domain, node.op_type) for node in left})
        return model, [conversion(domain, op_type, self._hosts) for domain, op_type in types]

    def _faster_of(self, float32: Any, bf16: Any) -> Any:
        """Choose by measuring; a hint alone may ask for what the CPU only emulates."""
        inputs = {
            desc.name: np.zeros([dim if isinstance(dim, int) else 1 for dim in desc.dims], desc.dtype.numpy)
            for desc in self.inputs
        }
        requests = {"float32": float32.create_infer_request(), "bf16": bf16.create_infer_request()}
        times = run_seconds({name: partial(each.infer, inputs, share_inputs=True) for name, each in requests.items()})
        chosen = "bf16" if times["bf16"] < _BF16_GAIN * times["float32"] else "float32"
        self.choices["float layers"] = (
            f"{chosen}: float32 {1e3 * times['float32']:.1f} ms, bf16 {1e3 * times['bf16']:.1f} ms"
        )
        _log.info("engine 'cpu': float layers compute in %s", self.choices["float layers"])
        return bf16 if chosen == "bf16" else float32

    @contextmanager
    def _explaining(self, what: str, kind: type[EngineError]) -> Iterator[None]:
        """Raise what a plugin raised, if OpenVINO's text is about it, else an error of this package."""
        try:
            with explaining(what, self.name, kind):
                yield
        except kind as error:
            original = self._errors.take(str(error.facts.get("text", "")))
            if original is None:
                raise
            raise original from None


class CpuContext(ExecutionContext):
    """One inference request of the compiled model."""

    engine: CpuEngine

    def __init__(self, engine: CpuEngine) -> None:
        super().__init__(engine)
        with engine._explaining("OpenVINO cannot make the memory of a run", ExecutionError):
            self._request = engine._compiled.create_infer_request()

    def _run(self, inputs: Arrays) -> Arrays:
        given = {name: _writable(inputs[name]) for name in self.engine._input_names}
        with self.engine._explaining("OpenVINO failed in the run", ExecutionError):
            results = self._request.infer(given, share_inputs=True)
        return {name: _array(results[index]) for index, name in enumerate(self.engine._output_names)}

    def _close(self) -> None:
        del self._request


def _close_hosts(hosts: tuple[PluginHost, ...]) -> None:
    for host in hosts:
        host.close()


def _writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array that OpenVINO takes: it shares scalars only where it may write them; of others it makes a copy itself."""
    return array if array.ndim or array.flags.writeable else array.copy()


def _array(value: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.asarray(value)
    return array
