"""Runs a network in float over a calibrator's batches, and passes every tensor to the calibrator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..calibration import CalibrationTable, Calibrator
from ..calibration.sidecar import Sidecar
from ..calibration.table import MAX_CACHE_BYTES
from ..errors import CalibrationTableError, UsageError
from ..model.decompose import known_to_be_sound
from ..model.opaque import computable_part, shown_node
from ..model.proto import copy_of, info_dims, infos_of
from ..passes import prepare
from ..tensor import AnyDims, Dims
from ..utils.files import read_regular
from ..utils.optional import onnx
from ..utils.progress import progress_bar
from ..utils.repeated import set_items
from .base.blocked import check_layouts
from .base.types import BuildOptions
from .registry import NEVER_AUTO, available_class

__all__ = ["calibrate", "calibrate_prepared", "fitting_table", "float_tensors", "network_digest", "network_runs"]


def calibrate(
    model: str | Path | onnx.ModelProto,
    calibrator: Calibrator,
    *,
    engine: str = "auto",
    threads: int | None = None,
    plugins: Mapping[str, str] | None = None,
    progress: bool = True,
) -> CalibrationTable:
    """Make a calibration table, whatever cache there is; nothing is written.

    Every float tensor of the prepared network is observed, also those that our INT8 form does not need, so that the table
    serves TensorRT too. Tensors behind nodes that nobody here has a class for cannot be computed, and get no scale. Images run one at
    a time, so memory does not grow with the batch; in a network whose batch is fixed, as many as that, and the last one is repeated
    where they do not fill it. Inputs that have no axis of images run as they are given.

    Args:
        model: Path or model without Q/DQ.
        calibrator: Gives the batches and takes the tensors.
        engine: Engine that runs the network in float32; ``"auto"``: one for CPUs, where every tensor is looked at.
        threads: Threads of one run.
        plugins: The form in which a plugin runs, by its name, as `pytrtplugins.build` takes it: the one that INT8 will run.
        progress: Show a progress bar if the output is a terminal.

    Raises:
        NoDataError: the calibrator has no batches.
        UsageError: a batch does not have the network's inputs; or the network or the engine has not a form of ``plugins``.
        CalibrationError: a tensor has values that are not finite.
        BuildError: weights are in the layout of a CPU.
    """
    return calibrate_prepared(prepare(model), calibrator, engine, threads, plugins, progress=progress)


def calibrate_prepared(
    model: onnx.ModelProto,
    calibrator: Calibrator,
    engine: str = "auto",
    threads: int | None = None,
    plugins: Mapping[str, str] | None = None,
    *,
    progress: bool,
) -> CalibrationTable:
    """Make a calibration table of a model that `prepare` returned; otherwise as `calibrate`."""
    prepared = computable_part(model)
    calibrator.reset()
    inputs = {info.name: info_dims(info) for info in prepared.graph.input}
    calibrator.bind(inputs)
    tapped, observed = _tapped(prepared), {*inputs, *float_tensors(prepared)}
    cls = available_class(engine, never={*NEVER_AUTO, "cuda"})
    check_layouts(prepared, cls.name, cls.runs_blocks)
    paths = getattr(calibrator.batches, "paths", None)
    options = BuildOptions("fp32", threads, settings=cls.fast_build, plugins=plugins or {})
    with known_to_be_sound(tapped):
        network = cls(tapped, options)
    with (
        network.create_context() as context,
        progress_bar("calibrating", None if paths is None else len(paths), progress) as advance,
    ):
        for batch in calibrator.get_batches():
            for run, images in network_runs(batch, inputs):
                for name, array in (*run.items(), *context.run(run).items()):
                    if name in observed:
                        calibrator.observe(name, array)
                advance(images, "")
    return calibrator.compute_table()


def fitting_table(
    calibration: CalibrationTable | str | Path,
    model: onnx.ModelProto,
    required: Sequence[str],
    *,
    partial: bool = False,
) -> CalibrationTable:
    """A table, or that of a cache file, once it is known to be this network's, and to have the tensors that it requires.

    With ``partial`` some of the required tensors may be missing, but not all.

    Raises:
        CalibrationTableError: it is broken, does not belong to its sidecar file, or was made for another network.
    """
    tensors = float_tensors(model)
    if isinstance(calibration, CalibrationTable):
        calibration.check_fits(tensors, required=_expected(required, calibration, partial))
        return calibration
    data, sidecar = Sidecar.read(
        calibration, lambda: read_regular(calibration, MAX_CACHE_BYTES, error=CalibrationTableError)
    )
    table = CalibrationTable.from_bytes(data, path=calibration)
    digests = (sidecar.network, network_digest(model)) if sidecar is not None and sidecar.network else None
    table.check_fits(tensors, required=_expected(required, table, partial), path=calibration, digests=digests)
    return table


def _expected(required: Sequence[str], table: CalibrationTable, partial: bool) -> Sequence[str]:
    """The tensors without which a table is refused."""
    return [name for name in required if name in table] or required if partial else required


def float_tensors(model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the float32 tensors of a prepared model that depend on its input: inputs first, then in order."""
    kind = onnx.TensorProto.FLOAT
    infos = infos_of(model.graph)
    found = [info.name for info in model.graph.input if info.type.tensor_type.elem_type == kind]
    for node in model.graph.node:
        if node.op_type != "Constant":
            found += [name for name in node.output if name in infos and infos[name].type.tensor_type.elem_type == kind]
    return tuple(found)


def network_digest(model: onnx.ModelProto) -> str:
    """SHA-256 of what a prepared model computes: operators, tensor names, attributes and weights, nothing inferred."""
    hasher = hashlib.sha256()
    for node in map(shown_node, model.graph.node):
        attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
        hasher.update(repr((node.op_type, node.domain, list(node.input), list(node.output), attributes)).encode())
    for tensor in sorted(model.graph.initializer, key=lambda tensor: tensor.name):
        array = onnx.numpy_helper.to_array(tensor)
        hasher.update(repr((tensor.name, array.dtype.name, array.shape)).encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()


def _tapped(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every float tensor as an output, or with its own outputs where nodes give none."""
    tapped = copy_of(model)
    inputs = {info.name for info in model.graph.input}
    infos = infos_of(model.graph)
    taps = [infos[name] for name in float_tensors(model) if name not in inputs]
    if taps:
        set_items(tapped.graph.output, taps)
    return tapped


def network_runs(
    batch: Mapping[str, npt.ArrayLike], inputs: Mapping[str, Dims]
) -> Iterator[tuple[dict[str, npt.NDArray[Any]], int]]:
    """What a network runs of a batch, run by run, and how many images of the batch that is.

    Raises:
        UsageError: the batch lacks inputs, or its arrays neither have one length nor the dims of the inputs.
    """
    arrays = {name: np.asarray(batch[name]) for name in inputs if name in batch}
    lengths = {array.shape[0] if array.ndim else None for array in arrays.values()}
    fixed = {dims[0] for dims in inputs.values() if dims and isinstance(dims[0], int)}
    if (
        _has_images(inputs)
        and len(arrays) == len(inputs)
        and len(lengths) == 1
        and len(fixed) < 2
        and (count := lengths.pop()) is not None
    ):
        size = max([1, *fixed])
        for begin in range(0, count, size):
            places = np.minimum(np.arange(begin, begin + size), count - 1)
            yield {name: array[places] for name, array in arrays.items()}, min(size, count - begin)
    elif len(arrays) == len(inputs) and all(_fits(array.shape, inputs[name]) for name, array in arrays.items()):
        yield {name: np.asarray(array, order="C") for name, array in arrays.items()}, 1
    else:
        raise UsageError(
            f"a calibration batch must hold arrays of one length, or of the network's dims, for the inputs {list(inputs)}; found "
            + ", ".join(f"{name}: {np.shape(array)}" for name, array in batch.items())
        )


def _has_images(inputs: Mapping[str, Dims]) -> bool:
    """Whether the first axis of inputs may be one of images: their ranks are known, and no other axis is as long as it must be."""
    firsts = {dims[0] for dims in inputs.values() if dims and not isinstance(dims[0], int)}
    others = {dim for dims in inputs.values() for dim in dims[1:]}
    return firsts.isdisjoint(others) and not any(isinstance(dims, AnyDims) for dims in inputs.values())


def _fits(shape: tuple[int, ...], dims: Dims) -> bool:
    """Whether an array has these dims, as far as they are fixed."""
    return isinstance(dims, AnyDims) or (
        len(shape) == len(dims) and all(a == b for a, b in zip(shape, dims, strict=True) if isinstance(b, int))
    )
