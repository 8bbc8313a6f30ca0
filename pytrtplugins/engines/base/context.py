"""The state of one thread's runs of an engine, with checks of inputs and outputs."""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...errors import BindingError, EngineError, ExecutionError
from ...passes.dim_names import derived_output_dims
from ...tensor import AnyDims, Array, Dims, SymbolicDim, TensorDesc, bind_dims
from .bound_run import BoundRun
from .exclusive import Exclusive
from .types import OwningEngine

__all__ = ["Arrays", "ContextMaker", "ExecutionContext", "check_dims", "check_dtype"]

Arrays = dict[str, npt.NDArray[Any]]


class ExecutionContext(Exclusive[Arrays]):
    """The state of one thread's runs of an engine. Close it, or use it in a ``with`` block.

    Subclasses fill in `_run`, and `_close` where there is something to release.
    """

    made_by = "engine.create_context()"

    def __init__(self, engine: OwningEngine) -> None:
        super().__init__(engine)
        self._fitting: list[tuple[str, tuple[int, ...], np.dtype[Any]]] | None = None  # what the last inputs were like
        self._fitting_outputs: list[tuple[int, ...]] | None = None  # dims of the outputs of these; their types stay
        self._output = engine.outputs[0].name
        self._shape: tuple[int, ...] | None = None  # what a single output was like, which is compared at once

    @abstractmethod
    def _run(self, inputs: Arrays) -> Arrays:
        """Run once; inputs are checked, contiguous arrays, and stay in the dict. The outputs belong to the caller from then on."""

    def _run_into(self, inputs: Arrays, outputs: Mapping[str, Array]) -> Arrays:
        """Run once, into arrays that the caller gives for some outputs; a context that writes them itself overrides it."""
        results = self._run(inputs)
        for name, target in outputs.items():
            check_dims(name, target, results[name].shape)
            np.copyto(target, results[name])
            results[name] = target
        return results

    def activation_bytes(self) -> int | None:
        """Bytes of device memory for activations during runs; None if the engine does not report it."""
        return None

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array] | None = None) -> Arrays:
        """Run the network once.

        Args:
            inputs: One array for each input of the engine, by name, of exactly its dtype; free dims may have any size,
                the same wherever they have the same name; a free first dim, the batch, at least 1.
            outputs: Arrays to write, for any of the outputs, by name, of exactly their dtype and dims.

        Returns:
            One array for each output, by name: the given one, or a new one.

        Raises:
            BindingError: names, dims or dtypes do not fit; dims of given outputs may be found wrong only after the run. Or given outputs
                share memory with each other; with an input they may.
            ExecutionError: the library below the engine failed, such as for want of memory, or gave an output that is not as the
                model says.
            EngineError: the context is closed, another thread is running it, or it is called from inside a run of it.
            Exception: what a plugin raised, as it raised it.
        """
        self._check_open()
        arrays, targets = self._check(inputs), self._check_targets(outputs) if outputs else {}
        with self._running():
            results = self._run_into(arrays, targets)
            first = results.get(self._output)
            if first is None or first.shape != self._shape:  # element types stay those of the first run
                self._check_changed(arrays, results)
            return results

    def run_async(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array] | None = None) -> Future[Arrays]:
        """Queue a run after those queued before it, for example of the next inputs while outputs of earlier runs are processed.

        Do not mix it with `run` while runs are queued.

        Args:
            inputs: As for `run`; unchanged until the outputs are there.
            outputs: As for `run`.

        Returns:
            The future of the outputs: ``.result()`` waits for them.

        Raises:
            Exception: as for `run`, here or from the future.
        """
        self._check_open()
        self._check_caller()
        return self._submit(self.run, inputs, outputs)

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> BoundRun:
        """Check arrays on the GPU once, and prepare runs that read and write them where they are: engine ``cuda`` can.

        The network runs here once, into the outputs; nothing is copied in later runs where arrays begin at multiples of 256 bytes,
        as allocations do.

        Args:
            inputs: One array for each input, by name, with values that the network takes; of CuPy, PyTorch, PyCUDA or any library
                with ``__cuda_array_interface__`` or DLPack.
            outputs: Arrays for any of the outputs, likewise.

        Returns:
            What launches a run: ``bound.launch(stream)``.

        Raises:
            BindingError: names, dims or dtypes do not fit, an array is not contiguous or not on the engine's GPU, or an output
                lies over another array.
            EngineError: the engine cannot bind arrays, the context is closed, or another thread is running it.
        """
        raise EngineError(
            f"{self.engine!r} cannot bind arrays; only engine 'cuda' can, with arrays on its GPU.\n"
            "Do: context.run(inputs, outputs), which writes into given arrays too",
            engine=self.engine.name,
        )

    def _sizes(self, inputs: Arrays) -> dict[str, int]:
        """The sizes of the inputs' free dims, by name."""
        bound = [bind_dims(desc.dims, inputs[desc.name].shape) for desc in self.engine.inputs]
        return {name: size for sizes in bound for name, size in sizes.items()}

    def _check(self, inputs: Mapping[str, Array]) -> Arrays:
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            names = ", ".join(f"{desc.name!r}: array" for desc in self.engine.inputs)
            raise BindingError(
                f"{self.engine!r}: expected arrays by their names, found {type(inputs).__name__}.\nDo: context.run({{{names}}})"
            )
        facts = [
            (name, value.shape, value.dtype)
            for name, value in inputs.items()
            if type(value) is np.ndarray and value.flags.c_contiguous and value.dtype.isnative
        ]
        plain = len(facts) == len(inputs)
        if plain and facts == self._fitting:
            return dict(inputs)
        checked = self._check_each(inputs)
        self._fitting, self._fitting_outputs, self._shape = facts if plain else None, None, None
        return checked

    def _check_each(self, inputs: Mapping[str, Array]) -> Arrays:
        expected = {desc.name: desc for desc in self.engine.inputs}
        if inputs.keys() != expected.keys():
            raise BindingError(
                f"{self.engine!r}: expected arrays for {sorted(expected)}, found {sorted(inputs)}",
                expected=sorted(expected),
                found=sorted(inputs),
            )
        free: dict[SymbolicDim, int] = {}
        return {name: self._check_input(desc, inputs[name], free) for name, desc in expected.items()}

    def _check_changed(self, inputs: Arrays, outputs: Arrays) -> None:
        """Check outputs, unless dims and types equal those of the last run on such inputs."""
        shapes = [array.shape for array in outputs.values()]
        if shapes != self._fitting_outputs:
            self._check_outputs(inputs, outputs)
            if self._fitting:
                self._fitting_outputs = shapes
                self._shape = shapes[0] if len(shapes) == 1 else None

    def _check_outputs(self, inputs: Arrays, outputs: Arrays) -> Arrays:
        """Require the dims and dtypes of a run's outputs.

        Raises:
            ExecutionError: one has others than the model says, or is missing.
        """
        sizes = self._sizes(inputs)
        missing = [desc.name for desc in self.engine.outputs if desc.name not in outputs]
        if missing:
            raise ExecutionError(
                f"engine {self.engine.name!r}: the run gave no output {missing[0]!r}; it gave {sorted(outputs)}.\n"
                "Do: return an array for each of engine.outputs from _run of the engine's context",
                expected=[desc.name for desc in self.engine.outputs],
                found=sorted(outputs),
            )
        for desc in self.engine.outputs:
            self._check_output(desc, outputs[desc.name], sizes)
        return outputs

    @functools.cached_property
    def _derived_dims(self) -> Mapping[str, Dims]:
        return derived_output_dims(self.engine.model_without_weights)

    def _check_output(self, desc: TensorDesc, array: Any, sizes: Mapping[str, int]) -> None:
        expected = [sizes.get(str(dim), dim) for dim in desc.dims]
        pairs = enumerate(zip(expected, array.shape, strict=False))
        wrong_axes = [axis for axis, (dim, size) in pairs if isinstance(dim, int) and dim not in (-1, size)]  # -1: free
        if wrong_axes and all(isinstance(desc.dims[axis], SymbolicDim) for axis in wrong_axes):
            derived = self._derived_dims[desc.name]  # a name that the file alone gives an axis holds nobody
            wrong_axes = [axis for axis in wrong_axes if derived[axis : axis + 1] == desc.dims[axis : axis + 1]]
        ranked = not isinstance(desc.dims, AnyDims)
        if wrong_axes or (ranked and len(array.shape) != len(expected)) or array.dtype != desc.dtype.numpy:
            raise ExecutionError(
                f"engine {self.engine.name!r}: output {desc.name!r} is {array.dtype} of dims {tuple(array.shape)}; expected "
                f"{desc.dtype} of ({', '.join(map(str, expected))}).\n"
                'Do: build with engine="onnxruntime"; if it gives the same, take the declared dims out of the model',
                expected=desc.dims,
                found=tuple(array.shape),
            )

    def _check_targets(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        descs = {desc.name: desc for desc in self.engine.outputs}
        unknown = sorted(outputs.keys() - descs.keys())
        if unknown:
            raise BindingError(
                f"{self.engine!r}: no output is named {unknown[0]!r}", expected=sorted(descs), found=unknown
            )
        targets = {name: self._target(descs[name], value) for name, value in outputs.items()}
        for (one, a), (other, b) in itertools.combinations(targets.items(), 2):
            if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and _share_memory(a, b):
                raise BindingError(
                    f"outputs {one!r} and {other!r}: their arrays share memory, so that one would overwrite the other.\n"
                    "Do: give each output an array of its own"
                )
        return targets

    def _target(self, desc: TensorDesc, value: Array) -> Array:
        """An array that the engine can write to, with the output's dtype.

        Raises:
            BindingError: it is no such array.
        """
        if not (isinstance(value, np.ndarray) and value.flags.writeable):
            raise BindingError(f"output {desc.name!r}: expected a writable NumPy array, found {type(value).__name__}")
        check_dtype("output", desc, value)
        return value

    def _array(self, desc: TensorDesc, value: Array) -> Any:
        """An input as a contiguous array in native byte order; dtype and shape are still to be checked.

        Raises:
            BindingError: it is not an array.
        """
        try:
            array = np.asarray(value)
        except TypeError as error:
            raise BindingError(
                f"input {desc.name!r}: expected a NumPy array, found {type(value).__name__}: {error}"
            ) from error
        native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        return np.ascontiguousarray(native).reshape(array.shape)

    def _check_input(self, desc: TensorDesc, value: Array, free: dict[SymbolicDim, int]) -> Any:
        array = self._array(desc, value)
        check_dtype("input", desc, array)
        if isinstance(desc.dims, AnyDims):
            return array
        fits = len(array.shape) == len(desc.dims) and all(
            free.setdefault(dim, size) == size if isinstance(dim, SymbolicDim) else dim == size
            for dim, size in zip(desc.dims, array.shape, strict=True)
        )
        if not fits:
            bound = f" with {', '.join(f'{dim}={size}' for dim, size in free.items())}" if free else ""
            raise BindingError(
                f"input {desc.name!r}: expected dims ({', '.join(map(str, desc.dims))}){bound}, found {array.shape}",
                expected=desc.dims,
                found=array.shape,
            )
        if array.shape[:1] == (0,) and self._is_batch(desc.dims[0]):
            raise BindingError(
                f"input {desc.name!r}: its batch {desc.dims[0]} is 0, expected at least 1; found {array.shape}.\n"
                "Do: leave it out if there is nothing to run on",
                expected=desc.dims,
                found=array.shape,
            )
        return array

    def _is_batch(self, dim: Any) -> bool:
        """Whether it is a free dim that an output begins with, too."""
        outputs = self.engine.outputs
        return isinstance(dim, SymbolicDim) and any(tuple(desc.dims)[:1] == (dim,) for desc in outputs)


def check_dims(name: str, target: Array, dims: tuple[int, ...]) -> None:
    """Check the dims of an output against those of the caller's array."""
    if tuple(target.shape) != dims:
        raise BindingError(
            f"output {name!r}: its dims are {dims}, those of the given array {tuple(target.shape)}",
            expected=dims,
            found=tuple(target.shape),
        )


def check_dtype(what: str, desc: TensorDesc, array: Any) -> None:
    """Require the dtype of a tensor."""
    if array.dtype.name != desc.dtype.value:
        raise BindingError(
            f"{what} {desc.name!r}: expected {desc.dtype}, found {array.dtype}.\nDo: array.astype(numpy.{desc.dtype})",
            expected=desc.dtype,
            found=array.dtype,
        )


def _share_memory(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether two arrays share memory, by a quick check."""
    try:
        return np.may_share_memory(a, b) and np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]  # any number, as NumPy's docs say
    except RuntimeError:  # NumPy's TooHardError: strides that hardly anybody has
        return False


class ContextMaker(OwningEngine, Protocol):
    """Interface of an engine for code that creates contexts of it."""

    def create_context(self) -> ExecutionContext:
        """Make the state for one thread's runs."""
