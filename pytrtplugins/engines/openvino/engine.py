"""The default engine for CPUs: OpenVINO, with plugins inside."""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...errors import BuildError, EngineError, ExecutionError, UnavailableError
from ...model.proto import arrays_of, copy_of, node_name
from ...model.skeleton import nodes_beyond_onnx
from ...passes import CONTRIB, WIDE_CODES, Placement, run_passes, write_functions
from ...passes.contrib.wide_codes import may_have_wide_codes
from ...plugin.onnx_node import from_node, is_plugin_node, scales_of
from ...tensor import DType
from ...utils.cpu_features import cpu_features, default_threads, describe_cpu
from ...utils.forks import fork_count
from ...utils.optional import onnx
from ...utils.override import override
from ...utils.signal_stack import keeping_signal_stack
from ...validation.dataflow import walk
from ..base.arithmetic import layer_types
from ..base.context import Arrays, ExecutionContext
from ..base.engine import ALWAYS
from ..base.failures import as_error, names_node, shorten_message, with_suspects
from ..base.fusion import Part, part_of
from ..base.plugin_codes import WriteCodes
from ..base.types import BuildOptions
from ..host.host_engine import HostEngine
from ..host.int8 import signed_activations
from ..host.ort_session import make_session
from ..host.timing import run_seconds
from .compiled import CompiledNetwork, Request
from .constant_keys import has_constant_keys
from .context import CpuContext
from .core import compiling_core, make_core
from .fallback import (
    FALLBACK,
    HOST,
    SessionHost,
    replace_by_sessions,
    unreadable,
    whole_reason,
    wrong_nodes,
)
from .fold_integers import fold_integers
from .openvino_passes import openvino_passes
from .plugin_errors import PluginErrors
from .rewrites.barrier_before_quantize import BarrierBeforeQuantize

if TYPE_CHECKING:
    from .plugin_op import PluginHost

__all__ = ["PLACEMENT", "CpuEngine"]

PLACEMENT = Placement(unsigned=True, pooled=True)
"""OpenVINO's convolutions take in what follows them, and give int8 or float: the common form, but for zero points of 0."""

_log = logging.getLogger(__name__)
_NATIVE_BF16 = {"bf16", "amx-bf16"}
_RUNTIME_FACTS = ("layerType", "originalLayersNames")
_NO_KERNELS = ("Const", "Input", "Output")
_INT8_STEP = "Transformation] END"
"""In errors of the steps by which OpenVINO makes int8 layers: it makes none of a single node, so that no node would be found at fault."""
_BF16_GAIN = 0.95  # bf16 must take less than this part of float32's time to be chosen


class CpuEngine(HostEngine):
    """OpenVINO on the CPU.

    Plugins with a decomposition are written out with standard operators, so that no Python runs per layer; the others, and
    those for which the user asks for another form, run as `pytrtplugins.plugin.policy` says. Float layers compute in float32,
    whatever hint OpenVINO would follow; with ``precision="bf16"`` they compute in bf16 where the CPU has it and where that was
    measured to be faster, or with ``settings={"bf16": "always"}``.
    """

    name: ClassVar[str] = "cpu"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16", "int8")
    settings: ClassVar[tuple[str, ...]] = ("bf16", "int8")
    library: ClassVar[str] = "OpenVINO"
    placement: ClassVar[Placement] = PLACEMENT
    nests: ClassVar[bool] = False
    runs_blocks: ClassVar[bool] = True  # by onnxruntime
    survives_fork: ClassVar[bool] = False
    parents_alone: ClassVar[str] = "OpenVINO"

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        super().__init__(model, options)
        if options.precision == "bf16" and not cpu_features() & _NATIVE_BF16:
            raise UnavailableError(
                f"engine 'cpu': this CPU has no bf16 arithmetic: {describe_cpu()}. OpenVINO would emulate it, several times "
                'slower.\nDo: precision="fp32" or precision="int8"'
            )
        self._hosts: dict[str, PluginHost | SessionHost] = {}
        self._errors = PluginErrors()
        self._session_error: Exception | None = None  # why onnxruntime could not run the whole model
        self._output_names = [desc.name for desc in self.outputs]
        # an operator that ONNX does not have may end the process in OpenVINO's reader
        unread = (
            node for node in nodes_beyond_onnx(self.model_without_weights) if node.domain in ("", "ai.onnx", CONTRIB)
        )
        unknown = next(unread, None)
        reason = whole_reason(fold_integers(self.model))
        self._whole: Any = self._session(reason) if reason else None
        if unknown is not None and self._whole is None:
            self._whole = self._unknown_session(unknown)
        self._network = self._compile() if self._whole is None else None
        known_inputs = self._known_inputs()
        self._input_names = [
            desc.name for desc in self.inputs if desc.name in known_inputs
        ]  # not those that nothing reads
        self._long = [desc.name for desc in self.inputs if desc.dtype is DType.INT64 and desc.name in known_inputs]
        self._exact: Any = None
        weakref.finalize(self, _close_hosts, tuple(self._hosts.values()), fork_count())

    def _create_context(self) -> ExecutionContext:
        return CpuContext(self)

    def _known_inputs(self) -> set[str]:
        """Inputs that the network reads, each under a unique name; if OpenVINO has lost one, onnxruntime computes everything."""
        if self._network is None:
            return set()
        names = {desc.name for desc in self.inputs}
        ports = [port.get_names() & names for port in self._network.compiled.inputs]
        if any(len(port_names) != 1 for port_names in ports):
            self._network, self._whole = None, self._session("it loses the name of an input")
            if self._whole is None:
                raise BuildError(
                    "engine 'cpu': OpenVINO loses the name of an input, and onnxruntime cannot run the model: "
                    f'{shorten_message(self._session_error or "a plugin is in it")}.\nDo: build with engine="reference"',
                    engine="cpu",
                )
        return set[str]().union(*ports)

    @override
    def parts(self) -> tuple[Part, ...]:
        if self._network is None:
            return super().parts()
        by_name: dict[str, onnx.NodeProto] = {}
        for node in self.model_without_weights.graph.node:
            by_name.update(dict.fromkeys((node.name, *node.output), node))
        engine_parts = []
        for op in self._network.compiled.get_runtime_model().get_ordered_ops():
            facts = {key: op.get_rt_info()[key].astype(str) for key in _RUNTIME_FACTS if key in op.get_rt_info()}
            if facts.get("layerType") not in _NO_KERNELS:
                names = facts.get("originalLayersNames", "").split(",")
                nodes = {id(by_name[name]): by_name[name] for name in names if name in by_name}
                engine_parts.append(part_of(op.get_friendly_name(), facts.get("layerType", ""), list(nodes.values())))
        return tuple(engine_parts)

    @override
    def weight_bytes(self) -> int | None:
        if self._network is None or self._hosts:
            return None  # some are onnxruntime's, or a plugin's
        total = 0
        for op in self._network.compiled.get_runtime_model().get_ordered_ops():
            if op.get_rt_info()["layerType"].astype(str) == "Const":
                total += (
                    sum(math.prod(port.get_shape()) * port.get_element_type().bitwidth for port in op.outputs()) // 8
                )
        return total

    def _session(self, reason: str) -> Any:
        """The session for the whole model, noted as a choice; None where onnxruntime cannot run it, or a plugin is in it."""
        session = self._make_session(reason)
        if session is not None:
            self.choices["computed by"] = f"onnxruntime: {reason}"
            if self.precision == "bf16":
                self.note_fallback(f"onnxruntime computes the model: {reason}")
        return session

    def _make_session(self, reason: str) -> Any:
        model = self._written_out()
        if any(is_plugin_node(node) for node in walk(model.graph.node)):
            return None
        try:
            session_model = copy_of(model) if model is self.model else model  # a session changes its model for a moment
            session = make_session(session_model, self.options.threads or default_threads(), self._exact_sums())
        except Exception as error:  # onnxruntime raises types of its own
            self._session_error = error
            _log.warning("engine 'cpu': %s; onnxruntime cannot run the model: %s", reason, shorten_message(error))
            return None
        _log.info("engine 'cpu': the model is computed by onnxruntime: %s", reason)
        return session

    def exact_session(self) -> Any:
        """The session for runs on inputs of which OpenVINO loses something; None where onnxruntime cannot run the model."""
        if self._exact is None:
            self._exact = self._make_session("inputs that OpenVINO computes wrongly or refuses") or False
        return self._exact or None

    def run_instead(self, error: ExecutionError, inputs: Arrays) -> Arrays:
        """Run onnxruntime after OpenVINO failed in a run.

        Raises:
            ExecutionError: it fails, too; one of both texts names a node.
        """
        text = str(error.facts.get("text", ""))
        named, session = names_node(text, self.model_without_weights), self.exact_session()
        if session is None:
            raise (error if named else with_suspects(error, self.model_without_weights)) from error.__cause__
        try:
            values = session.run(self._output_names, inputs)
        except Exception as other:  # onnxruntime raises types of its own
            if named:
                raise error from error.__cause__
            both = f"{error}\nonnxruntime fails there, too: {shorten_message(other)}"
            failure = ExecutionError(both, engine=self.name, text=text)
            named = names_node(str(other), self.model_without_weights)
            raise (failure if named else with_suspects(failure, self.model_without_weights)) from error.__cause__
        _log.warning("engine 'cpu': onnxruntime computed a run in which OpenVINO failed: %s", shorten_message(text))
        return dict(zip(self._output_names, values, strict=True))

    def _unknown_session(self, node: onnx.NodeProto) -> Any:
        """The session for a model with an operator that ONNX does not have, and that is not written with others."""
        operator = f"{node.domain or 'ai.onnx'}::{node.op_type}"
        session = self._session(f"OpenVINO does not have {operator}")
        if session is None:
            text = str(self._session_error or "plugins are in the model")
            raise BuildError(
                f"engine 'cpu' does not have the operator {operator} (node {node_name(node)!r}), and onnxruntime cannot run it: "
                f"{shorten_message(text)}.\nDo: export the model without onnxruntime's optimizer, or write the operator as a plugin",
                engine=self.name,
                op=node.op_type,
                node=node.name,
                text=text,
            ) from self._session_error
        return session

    def _compile(self) -> CompiledNetwork | None:
        model = self._openvino_form()
        signed = signed_activations(model)
        if signed and not self.float_reason:
            self.float_reason = f"{signed[0]!r} reaches the network as int8, which OpenVINO computes wrongly in places"
        if self.float_reason:
            self.choices["int8 layers"] = f"float32 between Q and DQ: {self.float_reason}"
            model = run_passes(model, BarrierBeforeQuantize(every=True))
        wrong, self._limits = wrong_nodes(model)
        while True:
            try:
                return self._build_in_openvino(model, wrong)
            except BuildError as error:
                searched = isinstance(error.__cause__, RuntimeError) and _INT8_STEP not in str(error)
                refused = unreadable(model, wrong) if searched else {}
                if not refused:
                    self._whole = self._session("OpenVINO cannot build it")
                    if self._whole is None:
                        raise self._with_session_error(error) from error.__cause__
                    return None
                wrong = {**wrong, **refused}

    def _with_session_error(self, error: BuildError) -> BuildError:
        """The error, extended by onnxruntime's error for the same model."""
        if self._session_error is None:
            return error
        return BuildError(
            f"{error}\nonnxruntime cannot run it either: {shorten_message(self._session_error)}", **error.facts
        )

    def _build_in_openvino(self, model: onnx.ModelProto, wrong: Mapping[int, str]) -> CompiledNetwork | None:
        with keeping_signal_stack(), self._explaining("OpenVINO cannot build the model", BuildError):
            return self._read(model, wrong)

    def _read(self, model: onnx.ModelProto, wrong: Mapping[int, str]) -> CompiledNetwork | None:
        """Read and compile the model in OpenVINO, with plugins and nodes for onnxruntime as custom operators."""
        core = make_core()
        from .plugin_op import conversion

        if wrong:
            model, sessions = replace_by_sessions(model, wrong, self.options.threads or default_threads())
            unranked = next((host.unranked for host in sessions.values() if host.unranked), "")
            if unranked:
                self._whole = self._session(f"the number of axes of {unranked!r} is known only at run time")
                if self._whole is not None:
                    return None
            self._hosts.update(sessions)
            self.choices["run by onnxruntime"] = "; ".join(sorted(set(wrong.values())))
        types = {(node.domain, node.op_type) for node in _plugin_nodes(model)}
        for domain, op_type in sorted(types | ({FALLBACK} if wrong else set())):
            core.add_extension(conversion(domain, op_type, self._hosts))
        network = core.read_model(self._serialized(model), b"")
        apart = {"SNIPPETS_MODE": "DISABLE"} if has_constant_keys(network) else {}  # each node has a kernel of its own

        def compiled_network(float_type: str) -> CompiledNetwork:
            config = {**self._config(float_type), **apart}
            return CompiledNetwork(
                partial(compiling_core().compile_model, network, "CPU", config), network.is_dynamic()
            )

        if (
            self.precision != "bf16" or "bf16" in layer_types(self.model).values()
        ):  # a precision file says it layer by layer
            return compiled_network("f32")
        bf16 = compiled_network("bf16")
        if self.options.settings.get("bf16") == ALWAYS:
            return bf16
        return self._faster_of(compiled_network("f32"), bf16)

    def _config(self, float_type: str) -> dict[str, Any]:
        threads = self.options.threads or default_threads()
        return {
            "INFERENCE_PRECISION_HINT": float_type,
            "PERFORMANCE_HINT": "LATENCY",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,  # else what int8 weights are multiplied by is rounded to int8, too
            "INFERENCE_NUM_THREADS": threads,
            # runs in the caller: a stream of one thread loses errors, and OpenVINO makes no more threads than there are cores
            **({"NUM_STREAMS": 0} if min(threads, default_threads()) == 1 else {}),
            **({"LP_TRANSFORMS_MODE": "NO"} if self.float_reason else {}),
        }

    def _openvino_form(self) -> onnx.ModelProto:
        """The model with decompositions written out and unsigned activations; plugins that are left have a host each."""
        written = self._written_out()
        if may_have_wide_codes(written):
            written = write_functions(written, WIDE_CODES)
        codes = WriteCodes(self.plugin_forms, self.options.plugins)
        model = fold_integers(run_passes(written, codes, *openvino_passes()))
        without_elements = arrays_of(tensor for tensor in model.graph.initializer if 0 in tensor.dims)
        for node in _plugin_nodes(model):
            from .plugin_op import PluginHost

            key = f"plugin {len(self._hosts)}"
            empty = {i: without_elements[name] for i, name in enumerate(node.input) if name in without_elements}
            name, scales = node.name or node.op_type, scales_of(node)
            self._hosts[key] = PluginHost(from_node(node), name, self._errors, self, empty, scales)
        return model

    def _serialized(self, model: onnx.ModelProto) -> bytes:
        """The model as bytes for OpenVINO, in which plugins have the attribute of their host."""
        hosted = copy_of(model) if _plugin_nodes(model) else model
        for index, node in enumerate(_plugin_nodes(hosted)):
            node.attribute.append(onnx.helper.make_attribute(HOST, f"plugin {index}"))
        data: bytes = hosted.SerializeToString()
        return data

    def _faster_of(self, float32: CompiledNetwork, bf16: CompiledNetwork) -> CompiledNetwork:
        """Choose by measuring; a hint alone may ask for what the CPU only emulates."""
        inputs = {
            desc.name: np.zeros([dim if isinstance(dim, int) else 1 for dim in desc.dims], desc.dtype.numpy)
            for desc in self.inputs
        }
        requests = {"float32": Request(float32), "bf16": Request(bf16)}
        times = run_seconds({name: partial(request.infer, inputs) for name, request in requests.items()})
        figures = f"bf16 takes {1e3 * times['bf16']:.3g} ms, float32 {1e3 * times['float32']:.3g} ms"
        if times["bf16"] < _BF16_GAIN * times["float32"]:
            self.choices["bf16"] = f"bf16: {figures}"
            _log.info("engine 'cpu' computes in bf16: %s", figures)
            return bf16
        _log.warning(
            "engine 'cpu' falls back from bf16 to float32, which is faster here: %s.\n"
            'Do: settings={"bf16": "always"}, or pytrt build --setting bf16=always, to keep bf16',
            figures,
        )
        self.note_fallback(figures)
        return float32

    @contextmanager
    def _explaining(self, what: str, kind: type[EngineError]) -> Iterator[None]:
        """In the block, raise a plugin's exception if OpenVINO's text refers to one, else an error of this package."""
        try:
            with as_error(what, self.name, kind):
                yield
        except kind as error:
            original = self._errors.take(str(error.facts.get("text", "")))
            if original is None:
                raise
            raise original from None


def _plugin_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in walk(model.graph.node) if is_plugin_node(node)]


def _close_hosts(hosts: tuple[PluginHost | SessionHost, ...], forks: int) -> None:
    for host in hosts:
        host.close()
        # OpenVINO never frees operators that Python defines: they let go of the weights before them, but in a forked child
        while forks == fork_count() and host.operators:
            host.operators.pop().set_arguments([])
