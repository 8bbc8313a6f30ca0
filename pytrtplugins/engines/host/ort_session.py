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

from ...errors import ExecutionError
from ...model.proto import copy_fields, copy_of, infos_of, node_name, numpy_type, without_data
from ...passes import of_onnx
from ...passes.contrib import ends_without_elements
from ...utils.forks import ForkLock, in_children, never_free
from ...utils.optional import require
from ...utils.override import override
from ...validation import infer
from ...validation.dataflow import reads, walk
from ...validation.operators import node_text, standard_domain, standard_opset
from ..base.failures import shortened

if TYPE_CHECKING:
    import onnx

__all__ = ["Session", "Submodel", "Submodels", "in_oldest_opset", "make_session", "optimized_model", "unsupported_node"]

_log = logging.getLogger(__name__)
_SAFE_IR = 10  # known to onnxruntime since 1.18
_ERRORS = 3  # and nothing less is logged
_ENTRIES = {"session.qdq_matmulnbits_accuracy_level": "1"}
"""What int8 and int4 weights are multiplied by stays float32, as the model says; onnxruntime rounds it to int8 by default."""


_FUSED = frozenset(
    ("Add", "DequantizeLinear", "DynamicQuantizeLinear", "LayerNormalization", "MatMulInteger", "Mul", "QuantizeLinear")
)
"""Of which onnxruntime's optimizer makes kernels that end the process without elements."""


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

    def extract(self, nodes: Sequence[onnx.NodeProto], *, typed: bool = True) -> Submodel:
        """Some of the nodes, in order, as a model of their own.

        Args:
            nodes: The nodes.
            typed: Whether the types of what they give are to be known.

        Raises:
            KeyError: the type of a tensor is not known.
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
        if typed:
            submodel.graph.output.extend(self._infos[name] for name in outputs)
        else:
            for name in outputs:
                submodel.graph.output.add(name=name)
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


class GuardedSession(Session):
    """A session of a model with kernels that can end the process where they get no elements; without them, other kernels run.

    Args:
        make: Makes the session.
        model: Its model.
        make_plain: Makes a session of another model, without optimizers, which would make those kernels again.
    """

    def __init__(
        self, make: Callable[[], Any], model: onnx.ModelProto, make_plain: Callable[[onnx.ModelProto], Any]
    ) -> None:
        super().__init__(make)
        self._model, self._make_plain = model, make_plain
        self._anywhere = any(map(_ends_without_elements, walk(model.graph.node)))
        self._direct = _read_by_codes(model)
        known = _known_empty(model)
        self._always = any(_ends_without_elements(node) and known & {*node.input} for node in walk(model.graph.node))
        self._plain: Session | None = None

    @override
    def run(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[Any]:
        empty = [name for name, array in inputs.items() if not array.size]
        if not self._always and not (empty and (self._anywhere or self._direct.intersection(empty))):
            return super().run(outputs, inputs)
        _check_elements(self._model, {name: array.shape for name, array in inputs.items()})
        with self._making:
            self._plain = self._plain or Session(partial(self._make_plain, self._written()))
        return self._plain.run(outputs, inputs)

    def _written(self) -> onnx.ModelProto:
        written = of_onnx(self._model)
        node = next(filter(ends_without_elements, walk(written.graph.node)), None)
        if node is not None:
            raise ExecutionError(
                f"{node_text(node)}: onnxruntime's kernel can end the process where an input has no elements, and this form of the "
                'operator is not written with others.\nDo: give inputs with elements, or build with engine="reference"',
                node=node.name,
            )
        return written


def _ends_without_elements(node: onnx.NodeProto) -> bool:
    return ends_without_elements(node) or _needs_elements(node)


def _read_by_codes(model: onnx.ModelProto) -> set[str]:
    """What is read by operators of which onnxruntime's optimizer makes such kernels."""
    return {name for node in walk(model.graph.node) if node.op_type in _FUSED for name in node.input if name}


def _known_empty(model: onnx.ModelProto) -> set[str]:
    """Tensors of which it is known that they have no elements."""
    empty = {tensor.name for tensor in model.graph.initializer if 0 in tensor.dims}
    for name, info in infos_of(model.graph).items():
        dims = info.type.tensor_type.shape.dim
        if any(dim.HasField("dim_value") and not dim.dim_value for dim in dims):
            empty.add(name)
    return empty


def _needs_elements(node: onnx.NodeProto) -> bool:
    """Whether a kernel of ONNX's own operators ends the process without elements, as seen with onnxruntime 1.32."""
    return node.op_type in ("Einsum", "GRU", "Scan") and not standard_domain(node.domain)


def _check_elements(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Require elements in what such a kernel reads, as far as the dims of the inputs tell them."""
    if not any(map(_needs_elements, walk(model.graph.node))):
        return
    given = without_data(model)
    for info in given.graph.input:
        info.type.tensor_type.ClearField("shape")
        for size in shapes[info.name]:
            info.type.tensor_type.shape.dim.add(dim_value=size)
    inferred = infer(given)
    empty = _known_empty(inferred)
    for node in filter(_needs_elements, inferred.graph.node):
        if not empty.isdisjoint(node.input):
            raise ExecutionError(
                f"{node_text(node)} is given a tensor without elements, which onnxruntime's kernel cannot read.\n"
                'Do: give elements, or build with engine="reference"',
                node=node.name,
            )


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

    def session(model: onnx.ModelProto, *, optimized: bool = True) -> Any:
        options = ort.SessionOptions()
        options.log_severity_level = _ERRORS
        options.intra_op_num_threads = threads
        for name, value in (_ENTRIES | dict(entries or {})).items():
            options.add_session_config_entry(name, value)
        if not optimized:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        with _named_nodes(model):
            data, providers = model.SerializeToString(), ["CPUExecutionProvider"]
        return ort.InferenceSession(data, options, providers=providers, disabled_optimizers=disabled)

    def guarded(model: onnx.ModelProto, *, optimized: bool = True) -> Session:
        make = partial(session, model, optimized=optimized)
        ends = any(map(_ends_without_elements, walk(model.graph.node)))
        if ends or not _read_by_codes(model).isdisjoint(info.name for info in model.graph.input):
            return GuardedSession(make, model, partial(session, optimized=False))
        return Session(make)

    empty = _known_empty(model)
    try:
        return guarded(model, optimized=not (empty and _read_by_codes(model).intersection(empty)))
    except Exception as error:  # onnxruntime raises types of its own
        first = error
    older = in_oldest_opset(model)
    if older is not None:
        with suppress(Exception):
            return guarded(older)
    try:
        plain = guarded(model if older is None else older, optimized=False)
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
            make_session(submodels.extract([node], typed=False).model, 1)
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
