"""Read external weights of a model: only from the model's folder, and only as many bytes as they claim."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..utils.inside import open_below
from ..utils.optional import onnx
from .dataflow import subgraphs
from .limits import size_text
from .operators import node_text
from .tensors import check_dims, is_external, packed_bytes
from .well_formed import check_well_formed

__all__ = ["load_external_data"]

_MAX_SHARED = 4
"""How often, on average, a byte of the files may be claimed: tied weights share their bytes, bombs do so by the thousand."""


def load_external_data(model: onnx.ModelProto, path: Path) -> bool:
    """Read data in other files into a model, of constants, attributes, bodies and local functions too; gives whether there were any.

    A file must be a regular one with one name, inside the folder, reached through no symbolic link. It is opened once, step by
    step from the folder on, so that it cannot be exchanged between a check and the reading.

    Raises:
        ModelError: a file is missing, is outside, or is none that may be read; or a tensor claims bytes that it does not have.
    """
    try:
        check_well_formed(model)
        return _load(model, path.parent)
    except ModelError as error:
        raise ModelError(f"{path}: {error}", **{**error.facts, "path": path}) from error


def _load(model: onnx.ModelProto, folder: Path) -> bool:
    claims = [_ExternalData.of(tensor, where) for tensor, where in _tensors(model) if is_external(tensor)]
    if not claims:
        return False
    files: dict[str, int] = {}
    try:
        for claim in claims:
            if claim.location not in files:
                files[claim.location] = _open_data(folder, claim)
        sizes = {location: os.fstat(handle).st_size for location, handle in files.items()}
        for claim in claims:
            claim.check(sizes[claim.location])
        claimed = sum(claim.length for claim in claims)
        if claimed > _MAX_SHARED * sum(sizes.values()):
            raise ModelError(
                f"its tensors claim {size_text(claimed)} of data files of {size_text(sum(sizes.values()))}; the limit is {_MAX_SHARED} "
                "times their size",
                found=claimed,
            )
        for claim in claims:
            claim.read(files[claim.location])
    finally:
        for handle in files.values():
            os.close(handle)
    return True


@dataclass
class _ExternalData:
    """File, offset and length that a tensor claims for its external data.

    Attributes:
        tensor: The tensor.
        where: Description of the tensor, for messages.
        location: Path of the file from the folder on, as the model says it.
        offset: Offset of the first byte.
        length: Bytes that type and dims need.
        stated: Bytes that the model says; -1: it says nothing.
    """

    tensor: Any
    where: str
    location: str
    offset: int
    length: int
    stated: int

    @classmethod
    def of(cls, tensor: Any, where: str) -> _ExternalData:
        """Parse a tensor's external_data entries."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        check_dims(tuple(tensor.dims), tensor.data_type, where)
        length = packed_bytes(math.prod(tensor.dims), tensor.data_type)
        claim = cls(tensor, where, entries.get("location", ""), 0, length, -1)
        claim.offset = claim._number(entries.get("offset", "0"))
        if (stated := entries.get("length", "-1")) != "-1":
            claim.stated = claim._number(stated)
        if tensor.data_type == tensor.STRING:
            raise claim.error("text cannot be stored in another file")
        return claim

    def check(self, size: int) -> None:
        """Check that the file has the claimed bytes."""
        if self.stated not in (-1, self.length):
            raise self.error(f"it says {self.stated:,} bytes where its type and dims need {self.length:,}")
        if self.stated == -1 and size - self.offset != self.length:
            raise self.error(
                f"from byte {self.offset:,} on the file has {size - self.offset:,} bytes; expected {self.length:,}"
            )
        if self.offset + self.length > size:
            raise self.error(f"the file has {size:,} bytes; expected {self.length:,} from byte {self.offset:,} on")

    def read(self, handle: int) -> None:
        """Read the bytes into the tensor."""
        os.lseek(handle, self.offset, os.SEEK_SET)
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(self.length)
        if len(data) != self.length:
            raise self.error(f"the file ended after {len(data):,} of {self.length:,} bytes: it is being written")
        self.tensor.raw_data = data
        self.tensor.ClearField("data_location")
        del self.tensor.external_data[:]

    def error(self, problem: str) -> ModelError:
        return ModelError(
            f"its weights lie in other files, which cannot be read: {self.where}: {self.location[:200]!r}: {problem}.\n"
            "Do: put them beside it, under the names that they had when the model was written, and not as links",
            tensor=self.tensor.name,
            location=self.location,
        )

    def _number(self, text: str) -> int:
        try:
            number = int(text[:30])
        except ValueError as error:
            raise self.error(f"{text[:30]!r} is not a number of bytes") from error
        if number < 0:
            raise self.error(f"{number} is not a number of bytes")
        return number


def _open_data(folder: Path, claim: _ExternalData) -> int:
    """Open a tensor's data file; no step below the model's folder may be a link."""
    steps = [step for step in claim.location.replace("\\", "/").split("/") if step not in ("", ".")]
    absolute = claim.location.startswith(("/", "\\")) or ":" in claim.location[:2]
    if absolute or not steps or ".." in steps or "\0" in claim.location:
        raise claim.error("expected the name of a file within the folder of the model")
    try:
        handle = open_below(folder, steps, os.O_RDONLY)
    except OSError as error:
        reason = "it is a symbolic link, or behind one" if _is_link(folder, steps) else error.strerror
        raise claim.error(str(reason)) from error
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(handle)
        raise claim.error(
            "it is not a regular file" if not stat.S_ISREG(facts.st_mode) else "it has other names too (hard links)"
        )
    return handle


def _is_link(folder: Path, steps: list[str]) -> bool:
    return any(folder.joinpath(*steps[: count + 1]).is_symlink() for count in range(len(steps)))


def _tensors(model: onnx.ModelProto) -> Iterator[tuple[Any, str]]:
    """Every tensor of a model, with its description."""
    yield from _graph_tensors(model.graph, "")
    for function in model.functions:
        yield from _node_tensors(function.node, f"in the local function {function.name[:100]!r}: ")


def _graph_tensors(graph: onnx.GraphProto, where: str) -> Iterator[tuple[Any, str]]:
    for tensor in graph.initializer:
        yield tensor, f"{where}initializer {tensor.name[:200]!r}"
    for sparse in graph.sparse_initializer:
        yield from _sparse_tensors(sparse, f"{where}sparse initializer {sparse.values.name[:200]!r}")
    yield from _node_tensors(graph.node, where)


def _node_tensors(nodes: Any, where: str) -> Iterator[tuple[Any, str]]:
    for node in nodes:
        for attribute in node.attribute:
            text = f"{where}{node_text(node)}: attribute {attribute.name[:200]!r}"
            if attribute.HasField("t"):
                yield attribute.t, text
            yield from ((tensor, text) for tensor in attribute.tensors)
            for sparse in ([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []) + list(
                attribute.sparse_tensors
            ):
                yield from _sparse_tensors(sparse, text)
        for body in subgraphs(node):
            yield from _graph_tensors(body, f"{where}in {node_text(node)}: ")


def _sparse_tensors(sparse: onnx.SparseTensorProto, where: str) -> Iterator[tuple[Any, str]]:
    yield sparse.values, f"{where}, its values"
    yield sparse.indices, f"{where}, its indices"
