"""A plugin class as one of TensorRT's quickly deployable plugins (QDP): the three functions that ``tensorrt.plugin`` takes."""

from __future__ import annotations

import importlib.util
import inspect
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from ...errors import MissingExtraError, PluginError, RegistryError, UnavailableError, UsageError
from ...plugin.base import Plugin
from ...tensor import DType
from ...utils.forks import ForkLock
from ...utils.optional import require
from ._api import RTX, Api, load
from .collected import guarded
from .host import PluginHost
from .memory import current_memory
from .plugin_fields import Extras
from .quick_fields import attribute_types, from_attributes, reads_numbers, to_attributes
from .rtx import MODULE

__all__ = ["QuickPlugin", "to_qdp"]

_OLDEST = (10, 7)
_TYPES = {"FLOAT": "FP32", "HALF": "FP16"}  # QDP's names, where they are not those of DataType
_LAYOUTS = ("LINEAR", "HWC")
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": operator.add,
    "SUB": operator.sub,
    "PROD": operator.mul,
    "FLOOR_DIV": operator.floordiv,
}
_KEPT_RUNS = 64

_made: dict[str, QuickPlugin] = {}
_lock = ForkLock()


def to_qdp(
    cls: type[Plugin], plugin_id: str | None = None, *, inputs: int | None = None, outputs: int | None = None
) -> QuickPlugin:
    """Register a plugin class as one of TensorRT's quickly deployable plugins, for ``network.add_plugin``.

    ``tensorrt.plugin.register`` gets the class's shape rule and types, ``impl`` its `enqueue`, or `compute` where it has none, and
    ``autotune`` the combinations that its `supports_format` takes, with its tactics. The fields become attributes: numbers and text as they
    are, tuples and arrays as arrays. What QDP lacks stays lacking: the version is 1, state that a plugin keeps between runs is shared by
    layers of equal fields, and Python is needed where the engine runs.

    Args:
        cls: A class with ``@plugin``; once more gives the same.
        plugin_id: ``"namespace::name"``, neither with a dot; None: the class's own.
        inputs: How many inputs it has; needed only where `compute` takes any number.
        outputs: How many outputs it has; None: what the class says in ``num_outputs``, else 1.

    Returns:
        What makes layers: ``network.add_plugin(shuffle(x, groups=4))``.

    Raises:
        MissingExtraError: TensorRT is not installed.
        UnavailableError: it is older than 10.7, or a package that only runs engines.
        RegistryError: another plugin has the name.
        FieldError: a field is an array of a type that QDP does not have.
        PluginError: TensorRT refuses the plugin for another reason, which the message has.
        UsageError: the name has a dot, or the number of inputs is not known.
    """
    api, quick = _load()
    namespace, name, _ = cls.plugin_key()
    wanted = plugin_id or f"{namespace}::{name}"
    if "." in wanted or wanted.count("::") != 1:
        raise UsageError(
            f"plugin_id: expected 'namespace::name' without a dot, found {wanted!r}.\n"
            f'Do: to_qdp({cls.__name__}, "{namespace.replace(".", "_")}::{name}")',
            plugin_id=wanted,
        )
    made = QuickPlugin(api, quick, cls, wanted, inputs, outputs)
    with _lock:
        known = _made.get(wanted)
        if known is not None and (known.cls, known.inputs, known.outputs) == (cls, made.inputs, made.outputs):
            return known
        made.register()
        _made[wanted] = made
    return made


def _load() -> tuple[Api, ModuleType]:
    try:
        api = load("tensorrt")
    except MissingExtraError:
        if importlib.util.find_spec(MODULE) is None:
            raise
        raise UnavailableError(
            "TensorRT for RTX has no quickly deployable plugins: its parser takes IPluginV3 alone.\n"
            f'Do: pytrtplugins.tensorrt.register(cls, package="{RTX}"); for TensorRT itself, pip install "pytrtplugins[tensorrt]"'
        ) from None
    api.require_builder()
    if tuple(map(int, api.version.split(".")[:2])) < _OLDEST:
        raise UnavailableError(
            f"TensorRT {api.version}: quickly deployable plugins need 10.7 or newer.\n"
            'Do: pip install "tensorrt>=10.7,<12", or pytrtplugins.tensorrt.register, which needs 10.3',
            version=api.version,
        )
    return api, require("tensorrt.plugin", extra="tensorrt", feature="to_qdp")


class _Run(NamedTuple):
    """A plugin that is prepared for tensors of certain dims, and what its key must not outlive."""

    host: PluginHost
    attributes: tuple[Any, ...]
    workspace: Any
    address: int


class _Local(threading.local):
    """What is prepared in each thread, the oldest first; a plugin is used by no two threads."""

    def __init__(self) -> None:
        self.runs: dict[tuple[Any, ...], _Run] = {}


class QuickPlugin:
    """A plugin class in TensorRT's registry of quickly deployable plugins; `to_qdp` makes it.

    Attributes:
        id: ``"acme::ChannelShuffle"``.
        cls: The class.
        inputs: Names of its inputs.
        outputs: How many outputs it has.
    """

    def __init__(
        self, api: Api, quick: ModuleType, cls: type[Plugin], plugin_id: str, inputs: int | None, outputs: int | None
    ) -> None:
        self.id, self.cls = plugin_id, cls
        self.outputs = getattr(cls, "num_outputs", 1) if outputs is None else outputs
        self._api, self._quick = api, quick
        self._numbers = reads_numbers(api.major)
        self._attributes = attribute_types(cls, self._numbers)
        self.inputs = _input_names(cls, inputs, self._attributes)
        self._has_tactics = bool(getattr(cls, "tactics", ()))
        self._local = _Local()

    def __call__(self, *tensors: Any, **fields: Any) -> Any:
        """One layer for ``network.add_plugin``: its input tensors, and the plugin's fields, which have the class's defaults.

        Raises:
            FieldError: a field is unknown or has a wrong value, or one without a default is missing.
        """
        return self.definition(*tensors, **to_attributes(self.cls(**fields), self._numbers))

    @property
    def definition(self) -> Any:
        """TensorRT's own ``tensorrt.plugin.op.NAMESPACE.NAME``, which knows no defaults."""
        namespace, _, name = self.id.partition("::")
        return getattr(getattr(self._quick.op, namespace), name)

    def register(self) -> None:
        """Hand the three functions over.

        Raises:
            RegistryError: TensorRT's registry has a creator of this name.
            PluginError: TensorRT refuses the plugin.
        """
        quick, (namespace, _, name) = self._quick, self.id.partition("::")
        if self._api.trt.get_plugin_registry().get_creator(name, "1", namespace) is not None:
            raise RegistryError(
                f"plugin {self.id}: TensorRT's registry has a creator of this name.\n"
                "Causes: (1) pytrtplugins.tensorrt.register was called for the class; (2) another class or library has the name.\n"
                f'Do: to_qdp({self.cls.__name__}, "{namespace}_quick::{name}")'
            )
        tensors = quick.TensorDesc
        result = tensors if self.outputs == 1 else tuple[(tensors,) * self.outputs]  # type: ignore[misc]
        described = dict.fromkeys(self.inputs, tensors) | self._attributes
        tactic = {"tactic": int} if self._has_tactics else {}
        try:
            quick.register(self.id)(_function(self._describe, described, result))
            quick.impl(self.id)(_function(self._run, dict.fromkeys((*described, "outputs", "stream", *tactic))))
            quick.autotune(self.id)(_function(self._combinations, dict.fromkeys((*described, "outputs"))))
        except (ValueError, TypeError) as error:
            raise PluginError(
                f"{self.cls.__name__}: TensorRT {self._api.version} does not take it as {self.id!r}: {error}"
            ) from error

    # -- what TensorRT calls -----------------------------------------------------------------------------------------

    @guarded
    def _describe(self, *descs: Any, **attributes: Any) -> Any:
        """``register``: the outputs' dims as shape expressions, and their types."""
        quick, host = self._quick, self._host(attributes)
        dtypes = host.output_types([desc.dtype for desc in descs])
        if any(expr.is_fake for desc in descs for expr in desc.shape_expr):  # only the types are asked for
            dims: list[tuple[Any, ...]] = [()] * self.outputs
        else:
            sizes = [[_Size(expr) for expr in desc.shape_expr] for desc in descs]
            dims = [tuple(map(_plain, exprs)) for exprs in host.output_dims(sizes, _Builder(quick))]
        found = tuple(quick.from_shape_expr(exprs, dtype=dtype) for exprs, dtype in zip(dims, dtypes, strict=True))
        return found if self.outputs > 1 else found[0]

    @guarded
    def _combinations(self, *given: Any) -> list[Any]:
        """``autotune``: each combination of types and layouts that the plugin takes, with its tactics.

        Raises:
            PluginError: it takes none.
        """
        count = len(self.inputs)
        host = self._host(dict(zip(self._attributes, given[count:-1], strict=True)))
        shapes = [tuple(desc.shape) for desc in (*given[:count], *given[-1])]
        tactics = host.tactics() or None
        found = [
            self._quick.AutoTuneCombination(
                ", ".join(_TYPES.get(desc.type.name, desc.type.name) for desc in descs),
                ", ".join(desc.format.name for desc in descs),
                tactics,
            )
            for descs in self._accepted(host, shapes, [])
        ]
        if not found:
            raise PluginError(
                f"{host.plugin!r}: supports_format takes no combination for {count} inputs of dims {shapes}"
            )
        return found

    @guarded
    def _run(self, *given: Any, stream: int | None = None) -> None:
        """``impl``: queue the work on the stream."""
        count = len(self.inputs)
        inputs, attributes = given[:count], given[count : count + len(self._attributes)]
        outputs, *rest = given[count + len(self._attributes) :]
        handle = rest[0] if stream is None else stream
        tactic = rest[-1] if self._has_tactics else 0
        tensors = tuple((tensor.dtype, tuple(tensor.shape), tensor.format) for tensor in (*inputs, *outputs))
        key = (handle, tactic, tensors, tuple(map(id, attributes)))
        runs = self._local.runs
        run = runs.get(key)
        if run is None:
            if len(runs) >= _KEPT_RUNS:
                runs.pop(next(iter(runs))).host.close()
            run = runs[key] = self._prepare(inputs, outputs, attributes, tactic, handle)
        read, written = ([tensor.data_ptr for tensor in side] for side in (inputs, outputs))
        run.host.enqueue(read, written, run.address, handle)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _host(self, attributes: dict[str, Any]) -> PluginHost:
        return PluginHost(self._api, from_attributes(self.cls, attributes), Extras(outputs=self.outputs))

    def _prepare(
        self, inputs: Sequence[Any], outputs: Sequence[Any], attributes: tuple[Any, ...], tactic: int, stream: int
    ) -> _Run:
        host = self._host(dict(zip(self._attributes, attributes, strict=True)))
        if self._has_tactics:
            host.set_tactic(tactic)
        host.prepare(
            *([_desc(item.dtype, item.shape, item.format, item.scale) for item in side] for side in (inputs, outputs))
        )
        memory = current_memory()
        with memory.stream(stream):  # QDP has no workspace
            workspace, address = memory.allocate(host.workspace_bytes) if host.workspace_bytes else (None, 0)
        return _Run(host, attributes, workspace, address)

    def _accepted(self, host: PluginHost, shapes: Sequence[tuple[int, ...]], chosen: list[Any]) -> Iterator[list[Any]]:
        """The combinations that begin with those chosen, asked tensor by tensor."""
        if len(chosen) == len(shapes):
            yield chosen
            return
        formats = self._api.trt.TensorFormat
        for layout in (getattr(formats, name) for name in _LAYOUTS):
            for dtype in DType:
                if not self._api.has_type(dtype):
                    continue
                descs = [*chosen, _desc(self._api.data_type(dtype), shapes[len(chosen)], layout)]
                padded = [*descs, *(_desc(descs[0].type, dims, formats.LINEAR) for dims in shapes[len(descs) :])]
                if host.supports(len(chosen), padded, len(self.inputs)):
                    yield from self._accepted(host, shapes, descs)


class _Size:
    """A shape expression of QDP's with the methods of ``IDimensionExpr``."""

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    def is_constant(self) -> bool:
        return bool(self.expr.is_constant)

    def get_constant_value(self) -> int:
        return int(self.expr.constant_value())


class _Builder:
    """Shape expressions of QDP's with the methods of ``IExprBuilder``."""

    def __init__(self, quick: ModuleType) -> None:
        self._quick = quick

    def constant(self, value: int) -> Any:
        return self._quick.ShapeExpr(value)

    def operation(self, kind: Any, left: Any, right: Any) -> Any:
        return _OPERATORS[kind.name](_plain(left), _plain(right))


def _plain(expr: Any) -> Any:
    return expr.expr if isinstance(expr, _Size) else expr


def _desc(dtype: Any, dims: Any, layout: Any, scale: float | None = None) -> Any:
    """What `PluginHost` reads of a ``PluginTensorDesc``."""
    return SimpleNamespace(type=dtype, dims=tuple(dims), format=layout, scale=scale or 0.0)


def _function(call: Callable[..., Any], parameters: dict[str, Any], result: Any = None) -> Callable[..., Any]:
    """A function with a signature, by which QDP tells tensors from attributes."""

    def function(*args: Any, **named: Any) -> Any:
        return call(*args, **named)

    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    listed = [inspect.Parameter(name, kind, annotation=given or empty) for name, given in parameters.items()]
    function.__signature__ = inspect.Signature(listed, return_annotation=result or empty)  # type: ignore[attr-defined]
    return function


def _input_names(cls: type[Plugin], count: int | None, attributes: dict[str, Any]) -> tuple[str, ...]:
    """Names of the inputs, as `Plugin.compute` has them where no attribute has the same."""
    static = isinstance(inspect.getattr_static(cls, "compute"), staticmethod)
    parameters = list(inspect.signature(cls.compute).parameters.values())[0 if static else 1 :]
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        if count is None:
            raise UsageError(
                f"{cls.__name__}.compute takes any number of inputs, and a quickly deployable plugin has a fixed one.\n"
                f"Do: to_qdp({cls.__name__}, inputs=2)"
            )
        names = [f"input{index}" for index in range(count)]
    else:
        names = [parameter.name for parameter in parameters]
    taken = {*attributes, "outputs", "stream", "tactic"}
    return tuple(f"{name}_input" if name in taken else name for name in names)
