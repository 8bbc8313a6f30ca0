"""Some nodes of a model as a separate model, and the onnxruntime session for it."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ...model.proto import copy_fields, copy_of, infos_of, node_name, numpy_type
from ...utils.forks import ForkLock, in_children, never_free
from ...utils.optional import require
from ...validation.dataflow import reads, walk
from ...validation.operators import standard_domain, standard_opset
from ..base.failures import shortened

if TYPE_CHECKING:
    import onnx

__all__ = ["Session", "Submodel", "Submodels", "in_oldest_opset", "make_session", "optimized_model", "unsupported_node"]

_log = logging.getLogger(__name__)
_SAFE_IR = 10  # known to onnxruntime since 1.18
_ERRORS = 3  # and nothing less is logged
_ENTRIES = {"session.qdq_matmulnbits_accuracy_level": "1"}
"""What int8 and int4 weights are multiplied by stays float32, as the model says; onnxruntime rounds it to int8 by default."""


@dataclass(frozen=True)
class Submodel:
    """Standard operators that run in one go.

    Attributes:
        model: They as a model of their own.
        inputs: Tensors that it reads.
        outputs: Tensors that it gives.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Submodels:
    """Cuts nodes out of a model, with the constants that they, and the graphs inside them, read.

    Args:
        model: A model with the types of all tensors. It stays as it is while nodes are cut out.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._model = model
        self._infos = infos_of(graph)
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._readers = Counter(name for node in graph.node for name in reads(node))
        self._readers.update(info.name for info in graph.output)

    def extract(self, nodes: Sequence[onnx.NodeProto]) -> Submodel:
        """Some of the nodes, in order, as a model of their own.

        Raises:
            KeyError: the type of a tensor that they read or give is not known.
        """
        made = [name for node in nodes for name in node.output]
        read = list(dict.fromkeys(name for node in nodes for name in (*node.input, *sorted(reads(node))) if name))
        readers_inside = Counter(name for node in nodes for name in reads(node))
        given = self._constants.keys() | made
        inputs = [name for name in read if name not in given]
        outputs = [name for name in made if self._readers[name] > readers_inside[name]]
        submodel = type(self._model)()
        copy_fields(self._model, submodel, without=("graph",))
        submodel.graph.name = self._model.graph.name
        submodel.graph.node.extend(nodes)
        submodel.graph.initializer.extend(self._constants[name] for name in read if name in self._constants)
        submodel.graph.input.extend(self._infos[name] for name in inputs)
        submodel.graph.output.extend(self._infos[name] for name in outputs)
        return Submodel(submodel, tuple(inputs), tuple(outputs))


class Session:
    """A session of onnxruntime's, which threads share. A child process makes it anew, since it lacks the threads of its parent's.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._making = make, ForkLock()
        self._made: Any = make()
        tensors = (*self._made.get_inputs(), *self._made.get_outputs())
        self._bfloat16 = any(tensor.type == "tensor(bfloat16)" for tensor in tensors)
        _SESSIONS.add(self)

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[Any]:
        """Run once.

        Returns:
            The outputs of these names.

        Raises:
            Exception: of onnxruntime's own types.
        """
        session = self._made or self._anew()
        if self._bfloat16:  # which its NumPy interface does not know
            return _run_values(session, outputs, inputs)
        arrays: list[Any] = session.run(outputs, inputs)
        return arrays

    def _anew(self) -> Any:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _leave_parent(self) -> None:
        if self._made is not None:
            never_free(self._made)
            self._made = None


def _run_values(session: Any, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[Any]:
    """Run a session on onnxruntime's own tensors, which may be of bfloat16."""
    values = {name: _to_value(array) for name, array in inputs.items()}
    return [_to_array(value) for value in session.run_with_ort_values(outputs, values)]


def _to_value(array: npt.NDArray[Any]) -> Any:
    ort = require("onnxruntime", extra="cpu")
    if array.dtype.name != "bfloat16":
        return ort.OrtValue.ortvalue_from_numpy(array)
    helper = require("onnx.helper", extra="onnx")
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), kind)


def _to_array(value: Any) -> npt.NDArray[Any]:
    dtype = numpy_type(value.element_type())
    if dtype.name != "bfloat16":
        array: npt.NDArray[Any] = value.numpy()
        return array
    count = math.prod(value.shape())
    data = ctypes.string_at(value.data_ptr(), count * dtype.itemsize) if count else b""
    return np.frombuffer(bytearray(data), dtype).reshape(value.shape())


_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()


def _leave_parents() -> None:
    for session in list(_SESSIONS):
        session._leave_parent()


in_children(_leave_parents)


def make_session(
    model: onnx.ModelProto,
    threads: int,
    entries: Mapping[str, str] | None = None,
    disabled: Collection[str] | None = None,
) -> Session:
    """Onnxruntime's session for a model of standard operators, on the CPU, with its own settings, and less some of its optimizers.

    The model stays as it is from then on. A model that onnxruntime refuses with its optimizers is run without them, with a warning in the
    log.

    Raises:
        Exception: of onnxruntime's own types, where it cannot run the model.
    """
    ort = require("onnxruntime", extra="cpu", feature="engines 'onnxruntime' and 'cpu'")
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS
    options.intra_op_num_threads = threads
    for name, value in (_ENTRIES | dict(entries or {})).items():
        options.add_session_config_entry(name, value)

    def session(model: onnx.ModelProto) -> Any:
        with _named_nodes(model):
            data, providers = model.SerializeToString(), ["CPUExecutionProvider"]
        return ort.InferenceSession(data, options, providers=providers, disabled_optimizers=disabled)

    try:
        return Session(partial(session, model))
    except Exception as error:  # onnxruntime raises types of its own
        first = error
    older = in_oldest_opset(model)
    if older is not None:
        with suppress(Exception):
            return Session(partial(session, older))
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        plain = Session(partial(session, model if older is None else older))
    except Exception:  # it is not the optimizers
        raise first from None
    _log.warning("onnxruntime runs the model without its optimizers, which fail: %s", shortened(first))
    return plain


def unsupported_node(model: onnx.ModelProto) -> onnx.NodeProto | None:
    """The first node that onnxruntime cannot run by itself, of a model with the types of its tensors; None where there is none."""
    submodels = Submodels(model)
    nodes: Iterable[onnx.NodeProto] = model.graph.node
    for node in nodes:
        try:
            make_session(submodels.extract([node]).model, 1)
        except KeyError:  # of a tensor whose type is not known
            continue
        except Exception:  # onnxruntime raises types of its own
            return node
    return None


@contextmanager
def _named_nodes(model: onnx.ModelProto) -> Iterator[None]:
    """Give nodes without a name that of their first output, for onnxruntime's errors, and take it away again."""
    nodes = [node for node in walk(model.graph.node) if not node.name]
    for node in nodes:
        node.name = node_name(node)
    try:
        yield
    finally:
        for node in nodes:
            node.ClearField("name")


def optimized_model(model: onnx.ModelProto, disabled: Collection[str] | None = None) -> onnx.ModelProto:
    """What onnxruntime makes of a model before it changes layouts, which renames tensors: fused operators are nodes of it.

    Raises:
        Exception: of onnxruntime's own types, where it cannot run the model.
    """
    ort = require("onnxruntime", extra="cpu")
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "optimized.onnx")
        options.optimized_model_filepath = path
        data = model.SerializeToString()
        ort.InferenceSession(data, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
        return cast("onnx.ModelProto", require("onnx", extra="onnx").load(path, load_external_data=False))


def in_oldest_opset(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with the oldest opset that has its operators as they are; None where it has that opset already.

    An operator means the same in each opset until it changes. Libraries refuse opsets that are newer than they are.
    """
    onnx = require("onnx", extra="onnx")
    opset = standard_opset(model)
    types = {node.op_type for node in walk(model.graph.node) if not standard_domain(node.domain)}
    if not opset or model.functions or not all(onnx.defs.has(op_type, opset, "") for op_type in types):
        return None
    oldest = max((onnx.defs.get_schema(op_type, opset, "").since_version for op_type in types), default=0)
    if not 0 < oldest < opset:
        return None
    twin = copy_of(model)
    for item in twin.opset_import:
        if not standard_domain(item.domain):
            item.version = oldest
    twin.ir_version = min(twin.ir_version, _SAFE_IR)
    return twin
