"""Read a darknet .weights file: a header of 16 or 20 bytes, then unnamed float32 numbers, all accounted for."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytrtplugins.errors import WeightsError
from pytrtplugins.utils.files import open_regular

from .layers import Convolutional, Dialect, Layer, PluginLayer

__all__ = ["FloatArray", "Header", "Parameters", "Weights", "random_parameters", "read_weights"]

FloatArray = npt.NDArray[np.float32]
Parameters = Mapping[str, FloatArray]
"""One layer's arrays by name, in the file's order; empty for a layer without parameters."""

_VERSION = struct.Struct("<3i")


@dataclass(frozen=True)
class Header:
    """The header of the file (src/parser.c, load_weights_upto).

    Attributes:
        major, minor, revision: Version of the format; above 1000 in the first two marks transposed connected layers.
        seen: Images that the training has seen.
        dialect: Whose darknet reads it: the fork has a wide ``seen`` whatever stands in major and minor.
    """

    major: int = 0
    minor: int = 2
    revision: int = 0
    seen: int = 0
    dialect: Dialect = field(default="pjreddie", compare=False)

    @property
    def transposed(self) -> bool:
        """Whether connected layers are stored transposed."""
        return self.major > 1000 or self.minor > 1000

    @property
    def wide_seen(self) -> bool:
        """Whether ``seen`` has 8 bytes; older files have 4."""
        narrow = self.dialect == "pjreddie" and (self.major >= 1000 or self.minor >= 1000)
        return self.major * 10 + self.minor >= 2 and not narrow

    @property
    def size_bytes(self) -> int:
        """Length of the header: 20 or 16."""
        return 20 if self.wide_seen else 16

    def to_bytes(self) -> bytes:
        """The header as the file has it."""
        seen = struct.pack("<Q" if self.wide_seen else "<i", self.seen)
        return _VERSION.pack(self.major, self.minor, self.revision) + seen


@dataclass(frozen=True, eq=False)
class Weights:
    """Header and numbers of a network.

    Attributes:
        header: Version and images seen.
        layers: Arrays of each layer, by name, with the shapes that they have in the file; read-only, and mapped from
            the file when they were read.
    """

    header: Header
    layers: tuple[Parameters, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Weights):
            return NotImplemented
        if self.header != other.header or len(self.layers) != len(other.layers):
            return False
        return all(
            mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)
            for mine, theirs in zip(self.layers, other.layers, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def to_bytes(self) -> bytes:
        """The whole file."""
        arrays = (array for parameters in self.layers for array in parameters.values())
        return b"".join([self.header.to_bytes(), *(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)])


def read_weights(
    path: str | Path, layers: Sequence[Layer], cfg: str = "the cfg", dialect: Dialect = "pjreddie"
) -> Weights:
    """Read the .weights file of a network.

    The file is mapped into memory, not read: arrays take no memory until they are used, and nothing is allocated
    before the sizes are known to fit. The layers say how many numbers come in which order; ``cfg`` is a name for messages.

    Raises:
        WeightsError: the file cannot be read, is too short or too long, or holds NaN, infinity or a negative variance;
            ``.path`` and ``.offset`` say where.
    """
    path = Path(path)
    try:
        with open_regular(str(path), error=partial(WeightsError, offset=0)) as file:
            size = file.seek(0, 2)
            file.seek(0)
            header = _parse_header(path, file.read(20), size, dialect)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror or error}.", path=str(path), offset=0) from error
    _check_size(path, size - header.size_bytes, header, layers, cfg)
    count = (size - header.size_bytes) // 4
    numbers = (
        np.memmap(path, "<f4", mode="r", offset=header.size_bytes, shape=(count,)) if count else np.zeros(0, "<f4")
    )
    parts: list[Parameters] = []
    start = 0
    for layer in layers:
        arrays: dict[str, FloatArray] = {}
        for name, shape in stored_parameters(layer, header):
            end = start + math.prod(shape)
            arrays[name] = np.asarray(numbers[start:end]).reshape(shape)
            _check_values(path, layer, name, arrays[name], header.size_bytes + 4 * start, cfg)
            start = end
        parts.append(arrays)
    return Weights(header, tuple(parts))


def stored_parameters(layer: Layer, header: Header) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a layer's parameters as the file has them: some weights are stored transposed."""
    if not layer.is_stored_transposed(header.transposed):
        return list(layer.parameters)
    return [
        (name, (math.prod(shape[1:]), shape[0]) if name == "weights" else shape) for name, shape in layer.parameters
    ]


def from_stored(layer: Layer, header: Header, arrays: Parameters) -> Parameters:
    """Convert a layer's arrays from the file's shapes to those of ``layer.parameters``."""
    if not layer.is_stored_transposed(header.transposed):
        return arrays
    shape = dict(layer.parameters)["weights"]
    return {**arrays, "weights": arrays["weights"].T.reshape(shape)}


def to_stored(layer: Layer, header: Header, arrays: Parameters) -> Parameters:
    """Convert a layer's arrays from the shapes of ``layer.parameters`` to the file's."""
    if not layer.is_stored_transposed(header.transposed):
        return arrays
    weights = arrays["weights"]
    return {**arrays, "weights": np.ascontiguousarray(weights.reshape(len(weights), -1).T)}


def random_parameters(layers: Sequence[Layer], seed: int) -> Weights:
    """Draw weights that keep activations in range: He's scale, and batch statistics as a trained network has them.

    The same seed gives the same weights.
    """
    generator = np.random.default_rng(seed)
    feeds_head = {layer.index - 1 for layer in layers if isinstance(layer, PluginLayer) and layer.is_head}
    draw: dict[str, Callable[[tuple[int, ...]], FloatArray]] = {
        "biases": lambda shape: generator.normal(0, 0.1, shape).astype("<f4"),
        "scales": lambda shape: generator.uniform(0.8, 1.2, shape).astype("<f4"),
        "rolling_mean": lambda shape: generator.normal(0, 0.1, shape).astype("<f4"),
        "rolling_variance": lambda shape: generator.uniform(0.5, 1.5, shape).astype("<f4"),
    }
    header = Header()
    parts: list[Parameters] = []
    for layer in layers:
        arrays = {name: draw[name](shape) for name, shape in layer.parameters if name != "weights"}
        shape = dict(layer.parameters).get("weights")
        if shape is not None:
            rectified = getattr(layer, "activation", "") in ("leaky", "relu")
            gain = 2.0 if rectified else 1.0 if layer.index in feeds_head else 0.25
            deviation = np.float32(math.sqrt(gain / layer.fan_in))
            arrays["weights"] = generator.standard_normal(shape, dtype=np.float32) * deviation
        ordered = {name: arrays[name] for name, _ in layer.parameters}
        parts.append(to_stored(layer, header, ordered))
    return Weights(header, tuple(parts))


def count_parameters(layer: Layer) -> int:
    """The number of float32 values of a layer in the file."""
    return sum(math.prod(shape) for _, shape in layer.parameters)


def _parse_header(path: Path, data: bytes, size: int, dialect: Dialect) -> Header:
    if len(data) >= _VERSION.size:
        major, minor, revision = _VERSION.unpack_from(data)
        header = Header(major, minor, revision, dialect=dialect)
        if len(data) >= header.size_bytes:
            (seen,) = struct.unpack_from("<Q" if header.wide_seen else "<i", data, _VERSION.size)
            return replace(header, seen=seen)
    raise WeightsError(
        f"{path}: the file has {size} bytes; a darknet weights file has a header of 16 or 20.",
        path=str(path),
        offset=size,
    )


def _check_size(path: Path, actual: int, header: Header, layers: Sequence[Layer], cfg: str) -> None:
    expected = 4 * sum(count_parameters(layer) for layer in layers)
    if actual == expected:
        return
    start = header.size_bytes
    total, actual_total = start + expected, start + actual
    if actual > expected:
        last = next((layer for layer in reversed(layers) if layer.parameters), None)
        where = f" ({last.index}, {last.type})" if last else ""
        problem = f"{actual - expected:,} bytes left after the last layer with weights{where}"
        offset = total
    else:
        layer, offset = _layer_at(layers, start, actual)
        problem = f"the file ends inside layer {layer.index} ({layer.type}, line {layer.line} of {cfg})"
        if offset == actual_total:
            problem = f"the file ends exactly before layer {layer.index} ({layer.type}, line {layer.line} of {cfg})"
    hint = _size_hint((actual - expected) / 4, layers, exact=actual < expected and offset == actual_total)
    raise WeightsError(
        f"{path}: {problem}: expected {total:,} bytes in all, found {actual_total:,}.\n{hint}"
        "Causes: (1) the .cfg has another class count than the weights; (2) the two files belong to different networks"
        + ("; (3) the download was cut short" if actual < expected else "")
        + f".\nDo: darknet2caffe inspect {cfg} {path}",
        path=str(path),
        offset=min(total, actual_total),
        expected=total,
        found=actual_total,
    )


def _layer_at(layers: Sequence[Layer], start: int, actual: int) -> tuple[Layer, int]:
    """The layer in whose numbers the file ends, and the offset at which that layer starts."""
    offset = start
    for layer in layers:
        size = 4 * count_parameters(layer)
        if offset + size > start + actual:
            return layer, offset
        offset += size
    raise AssertionError("called only for files that are too short")


def _size_hint(numbers: float, layers: Sequence[Layer], *, exact: bool) -> str:
    """A hint from the size difference: another class count changes the filters of the layers before heads."""
    if exact:
        return "The file may hold only a trunk to start training from.\n"
    heads = [
        layers[layer.index - 1]
        for layer in layers
        if isinstance(layer, PluginLayer) and layer.is_head and isinstance(layers[layer.index - 1], Convolutional)
    ]
    per_filter = [count_parameters(layer) // layer.dims[0] for layer in heads]
    if not heads or numbers % sum(per_filter):
        return ""
    more = int(numbers // sum(per_filter))
    changes = " and ".join(f"layer {h.index} ({h.dims[0] + more} instead of {h.dims[0]})" for h in heads)
    if any(h.dims[0] + more < 1 for h in heads):
        return ""
    kind = "remainder" if more > 0 else "gap"
    return f"The {kind} is exactly {abs(more)} {'more' if more > 0 else 'fewer'} filters of {changes}.\n"


def _check_values(path: Path, layer: Layer, name: str, array: FloatArray, offset: int, cfg: str) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        problem, place = "is not a finite number", int(np.argmin(finite))
    elif name == "rolling_variance" and array.size and array.min() < 0:
        problem, place = "is negative, which no variance can be", int(np.argmax(array < 0))
    else:
        return
    raise WeightsError(
        f"{path}: {name}[{place}] of layer {layer.index} ({layer.type}, line {layer.line} of {cfg}), at byte"
        f" {offset + 4 * place:,}, is {array.flat[place]}: it {problem}.\n"
        "Causes: (1) the file is damaged; (2) the two files belong to different networks; (3) the training diverged.\n"
        f"Do: darknet2caffe inspect {cfg} {path}",
        path=str(path),
        offset=offset + 4 * place,
        layer=layer.index,
    )
