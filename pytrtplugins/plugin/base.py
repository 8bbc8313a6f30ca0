"""A custom layer: one class with typed attributes, a shape rule and a reference computation."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

from ..errors import DimsError, FieldError, PluginError, SerializationError
from ..tensor import Array, Dims, DType, TensorDesc
from ..utils.notebook import ClassOrInstanceMethod
from ..utils.optional import onnx
from .envelope import unwrap, wrap
from .field_values import value_origin
from .fields import FieldSpec, fields_equal, format_value, pack_fields, unpack_fields
from .notebook import plugin_view
from .outputs import check_dtypes, check_elements, checked_arrays, checked_dims
from .packing import Reader, pack_text

__all__ = ["Plugin", "PluginKey", "hooks"]


class PluginKey(NamedTuple):
    """The identity of a plugin class in a model, an engine and TensorRT's registry."""

    namespace: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.namespace}::{self.name} version {self.version}"


class _Hooks:
    """Functions of modules that import this one, such as the registry; they set them here, which avoids circular imports."""

    register: Callable[[type[Plugin]], None]
    lookup: Callable[[str, str, str], type[Plugin]]
    as_node: Callable[[Plugin, Iterable[str], Iterable[str], str], onnx.NodeProto]


hooks = _Hooks()


class Plugin:
    """Base of all plugins, with IPluginV2's life cycle in its order and words.

    A subclass with typed attributes, `output_dims` and `compute` is complete; the other methods have defaults that
    fit such a class. docs/explanation/lifecycle.md maps each to TensorRT's interfaces. Attributes declared as fields cannot change
    after construction; a subclass may keep other state, made in `configure` or `initialize`, in attributes that are not
    annotated.

    Attributes:
        int8: INT8 support of the layer: ``"pass_through"`` when it only moves values, so that the scale stays;
            ``"requantize"`` when it computes on INT8 with scales of its own; ``"float"`` when it must stay in floating
            point.
        max_elements: The most elements that a tensor of the plugin may have; larger ones are refused. None: no limit.
    """

    int8: ClassVar[str] = "float"
    max_elements: ClassVar[int | None] = None

    _key: ClassVar[PluginKey]
    _specs: ClassVar[tuple[FieldSpec, ...]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        if "_key" not in cls.__dict__:
            raise PluginError(f"{cls.__name__} is not registered.\nDo: put @plugin(namespace=...) above the class.")
        try:
            bound = inspect.signature(cls).bind(*args, **kwargs)
        except TypeError as error:
            accepted = ", ".join(f"{spec.name}: {spec.type_name}" for spec in cls._specs) or "none"
            raise FieldError(f"{cls.__name__}: {error}. Fields: {accepted}.") from error
        for spec in cls._specs:
            value = (
                spec.convert(bound.arguments[spec.name], cls.__name__) if spec.name in bound.arguments else spec.default
            )
            self.__dict__[spec.name] = value
        self.validate()

    # -- what a plugin writes --------------------------------------------------------------------------------

    def validate(self) -> None:
        """Check field values against each other; called by the constructor. Raise `FieldError` for wrong ones."""

    def output_dims(self, *inputs: Any) -> Any:
        """The only shape rule.

        Args:
            *inputs: `Dims` of each input: ints, or `SymbolicDim` where known only at run time.

        Returns:
            Dims of the output, or a tuple of dims where there are several outputs.

        Raises:
            DimsError: the plugin does not accept these dims.
        """
        raise PluginError(f"{type(self).__name__} lacks output_dims")

    def compute(self, *inputs: Array) -> Any:
        """The reference: what every faster form must equal. Arrays in, new arrays out, inputs unchanged, no state.

        Args:
            *inputs: Arrays of NumPy or CuPy, possibly not contiguous.

        Returns:
            One array, or a tuple of arrays where there are several outputs.
        """
        raise PluginError(f"{type(self).__name__} lacks compute")

    def output_dtypes(self, *inputs: Any) -> Any:
        """Element type of the output, or a tuple of them; by default every output has the first input's."""
        return inputs[0]

    def supports_format(self, position: int, descs: Sequence[TensorDesc]) -> bool:
        """Whether tensor ``position`` may have its dtype and layout, given the formats of the tensors before it.

        Args:
            position: Index into ``descs``.
            descs: The inputs, then the outputs.

        Returns:
            By default: linear float32 or float16 (int8 too where ``int8`` is not ``"float"``), the same for all tensors.
        """
        accepted = (DType.FLOAT32, DType.FLOAT16, *(() if self.int8 == "float" else (DType.INT8,)))
        desc = descs[position]
        return desc.layout == "linear" and desc.dtype in accepted and desc.dtype == descs[0].dtype

    def configure(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> None:
        """Learn the dims, dtypes and layouts that were chosen; called before `initialize`, and again when they change."""

    def workspace_size(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> int:
        """Scratch memory that `enqueue` needs, in bytes."""
        return 0

    def initialize(self) -> None:
        """Acquire what `enqueue` needs and serialization does not hold, such as compiled kernels."""

    def enqueue(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array | None, stream: Any) -> None:
        """Queue the work on ``stream``, writing into ``outputs``; no allocation and no synchronization in a fast one.

        Args:
            inputs: Arrays of the engine's device, contiguous in their layout.
            outputs: Arrays to write, of the dims and dtypes agreed in `configure`.
            workspace: ``workspace_size`` bytes on the device, or None when that is 0.
            stream: CUDA stream to queue on; None on a CPU.
        """
        for output, value in zip(outputs, self.all_outputs(inputs), strict=True):
            output[...] = value

    def terminate(self) -> None:
        """Release what `initialize` acquired."""

    # A plugin made of standard ONNX operators may also define
    #     def decompose(self, op: OpBuilder, *inputs: Value) -> Value | tuple[Value, ...]
    # It is optional, so it is not declared here: `has_decomposition` asks for it.

    # -- what engines and tools call -------------------------------------------------------------------------

    @classmethod
    def plugin_key(cls) -> PluginKey:
        """Namespace, name and version."""
        return cls._key

    @classmethod
    def field_specs(cls) -> tuple[FieldSpec, ...]:
        """The declared fields, in order."""
        return cls._specs

    def fields(self) -> dict[str, Any]:
        """The fields' values, in declared order."""
        return {spec.name: self.__dict__[spec.name] for spec in self._specs}

    @property
    def num_inputs(self) -> int | None:
        """The number of inputs of `compute`; None for any number."""
        function = getattr(self.compute, "__func__", None)
        if function is None:  # a static method
            return _count_positional(self.compute)
        count = _count_positional(function)
        return None if count is None else count - 1

    @classmethod
    def has_decomposition(cls) -> bool:
        """Whether the plugin can be written with standard ONNX operators."""
        return callable(getattr(cls, "decompose", None))

    def all_output_dims(self, inputs: Sequence[Dims]) -> tuple[Dims, ...]:
        """`output_dims` for engines: always a tuple of dims, one per output, each checked.

        Raises:
            DimsError: the number of inputs is wrong, the plugin refuses the dims, or what it returned are not dims.
        """
        self._check_count(len(inputs))
        result = self.output_dims(*(tuple(dims) for dims in inputs))
        if not isinstance(result, (tuple, list)):
            raise DimsError(f"{self!r}: output_dims must return a tuple of dims, found {result!r}", found=result)
        several = bool(result) and isinstance(result[0], (tuple, list))
        outputs = tuple(checked_dims(self, dims) for dims in (result if several else (result,)))
        check_elements(self, self.max_elements, [*inputs, *outputs])
        return outputs

    def all_output_dtypes(self, inputs: Sequence[DType], num_outputs: int) -> tuple[DType, ...]:
        """`output_dtypes` for engines: always a tuple with ``num_outputs`` entries.

        Raises:
            PluginError: a type is none of `PLUGIN_DTYPES`, or the number of types is wrong.
        """
        check_dtypes(self, "reads", inputs)
        result = self.output_dtypes(*inputs)
        if isinstance(result, (tuple, list)):
            if len(result) != num_outputs:
                raise PluginError(f"{self!r}: output_dtypes gave {len(result)} types for {num_outputs} outputs")
        else:
            result = (result,) * num_outputs
        dtypes = tuple(DType.of(dtype) for dtype in result)
        check_dtypes(self, "gives", dtypes)
        return dtypes

    def all_outputs(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """`compute` for engines: always a tuple of arrays, checked against the shape rule and the output types.

        Raises:
            DimsError: the inputs are refused, or an output has another shape than `output_dims` says.
            PluginError: an output is not an array, or has another element type than `output_dtypes` says.
        """
        dims = self.all_output_dims([array.shape for array in inputs])
        dtypes = self.all_output_dtypes([DType.of(array) for array in inputs], len(dims))
        result = self.compute(*inputs)
        return checked_arrays(self, inputs, result, dims, dtypes)

    def serialize(self) -> bytes:
        """The plugin as bytes: magic, format version, length, key and fields, checksum (docs/reference/format.md)."""
        return wrap(b"".join(map(pack_text, self._key)) + pack_fields(self._specs, self.fields()))

    @classmethod
    def deserialize(cls, data: bytes) -> Plugin:
        """Make the plugin that `serialize` wrote.

        Args:
            data: Exactly the bytes of one plugin. On `Plugin` itself any registered plugin, on a subclass only its own.

        Raises:
            SerializationError: the data is damaged, cut short, too long, of another format version, or another plugin's.
            RegistryError: no class is registered under the key in the data.
        """
        data = bytes(data)
        reader = Reader(unwrap(data, cls.__name__), cls.__name__)
        key = PluginKey(reader.text(), reader.text(), reader.text())
        if cls is Plugin:
            cls = hooks.lookup(*key)
        if key != cls._key:
            raise SerializationError(
                f"{cls.__name__}: the data is a {key}, expected {cls._key}", expected=cls._key, found=key
            )
        with value_origin("the serialized plugin"):
            return cls(**unpack_fields(cls._specs, reader.data[reader.offset :], cls.__name__))

    def clone(self) -> Plugin:
        """An equal plugin that shares no changeable state with this one."""
        twin = type(self)(**self.fields())
        declared = {spec.name for spec in self._specs}
        twin.__dict__.update(
            copy.deepcopy({name: value for name, value in self.__dict__.items() if name not in declared})
        )
        return twin

    def as_node(self, inputs: Iterable[str], outputs: Iterable[str], name: str = "") -> onnx.NodeProto:
        """The plugin as an ONNX node: domain = namespace, fields as attributes, plus ``plugin_namespace`` and ``plugin_version``."""
        return hooks.as_node(self, inputs, outputs, name)

    # -- Python's own ----------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if any(spec.name == name for spec in type(self)._specs):
            if name not in self.__dict__:
                raise FieldError(
                    f"{type(self).__name__}: its own __init__ sets the field {name!r}, which the constructor of plugins does.\n"
                    "Do: leave __init__ out, or call super().__init__ with the fields; prepare what follows from them in configure",
                    name=name,
                )
            raise FieldError(
                f"{self!r}: field {name!r} cannot change.\nDo: make another one, {type(self).__name__}({name}=...).",
                name=name,
            )
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return self._text

    _repr_html_ = ClassOrInstanceMethod(plugin_view)

    @functools.cached_property
    def _text(self) -> str:  # shape rules put it into the messages of thousands of dims that they refuse
        return f"{type(self).__name__}({', '.join(f'{name}={format_value(value)}' for name, value in self.fields().items())})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and fields_equal(self.fields(), other.fields())

    def __hash__(self) -> int:
        return hash(self.serialize())

    # -- inside ----------------------------------------------------------------------------------------------

    def _check_count(self, count: int) -> None:
        expected = self.num_inputs
        if expected is not None and count != expected:
            raise DimsError(f"{self!r}: expected {expected} inputs, found {count}", expected=expected, found=count)


@functools.lru_cache(512)
def _count_positional(function: Callable[..., Any]) -> int | None:
    """The number of positional arguments of a function; None for any number."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )
