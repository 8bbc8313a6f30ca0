"""Matrix products by NVIDIA's cuBLASLt: described once, run by any of its algorithms, and safe to capture in a CUDA graph."""

from __future__ import annotations

import functools
import importlib.util
import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import BuildError
from ....tensor import DType
from ....utils.optional import installed_version, require

__all__ = ["ALIGNMENT", "CublasLt", "Described", "Matrix", "Product", "cublaslt_version", "is_matrix", "stored"]

_TYPES = {DType.FLOAT32: 0, DType.FLOAT16: 2}
"""Element type → ``cudaDataType_t``."""
ALIGNMENT = 16
"""Alignment of tensors in bytes, unless they are parts of others."""


def cublaslt_version() -> str:
    """The version of the installed cuBLASLt; empty where it or its bindings are not installed. Nothing is loaded."""
    if importlib.util.find_spec("nvmath") is None:
        return ""
    return installed_version("nvidia-cublas") or installed_version("nvidia-cublas-cu13") or "of unknown version"


@dataclass(frozen=True)
class Matrix:
    """A matrix in memory, or a batch of them.

    Attributes:
        dtype: float32 or float16.
        leading: Leading dimension: values from one row to the next, or of a transposed matrix from one column to the next.
        transposed: Whether columns, not rows, are contiguous.
        batch_stride: Values from one matrix of a batch to the next; 0: all are the same one.
        alignment: Alignment of the first matrix in bytes.
    """

    dtype: DType
    leading: int
    transposed: bool = False
    batch_stride: int = 0
    alignment: int = ALIGNMENT


@dataclass(frozen=True, kw_only=True)
class Product:
    """y = epilogue(alpha * a b + c), row by row: a (m, k), b (k, n), y and c (m, n); sums are float32.

    Attributes:
        m: Rows of a and y.
        n: Columns of b and y.
        k: Columns of a and rows of b.
        a: First factor.
        b: Second factor.
        y: The result, not transposed.
        c: Addend, of y's type; None: none.
        batch: Number of products.
        bias: Whether each column has a bias, of y's type.
        activation: ``"linear"``, ``"relu"`` or ``"gelu_tanh"``.
        tf32: Whether float32 may be rounded to TF32.
    """

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    y: Matrix
    c: Matrix | None = None
    batch: int = 1
    bias: bool = False
    activation: str = "linear"
    tf32: bool = False


def stored(rows: int, columns: int, strides: tuple[int, int]) -> tuple[int, bool]:
    """``leading`` and ``transposed`` of a `Matrix` with these strides.

    Raises:
        ValueError: neither rows nor columns are contiguous.
    """
    down, across = strides
    if (across == 1 or columns == 1) and (rows == 1 or down >= columns):
        return (down if rows > 1 else columns), False
    if (down == 1 or rows == 1) and (columns == 1 or across >= rows):
        return (across if columns > 1 else rows), True
    raise ValueError(
        f"neither rows nor columns are contiguous: a matrix of {rows} rows and {columns} columns with strides {strides}"
    )


def is_matrix(dims: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the last two axes of a tensor are matrices with contiguous rows or columns."""
    if len(dims) < 2:
        return False
    try:
        stored(dims[-2], dims[-1], (strides[-2], strides[-1]))
    except ValueError:
        return False
    return True


class CublasLt:
    """The library cuBLASLt on the current GPU; it is loaded when it is first used."""

    @functools.cached_property
    def bindings(self) -> Any:
        """NVIDIA's Python bindings of cuBLASLt.

        Raises:
            MissingExtraError: they are not installed.
        """
        return require("nvmath.bindings.cublasLt", extra="cublaslt", package="nvmath-python", feature="engine 'cuda'")

    @functools.cached_property
    def handle(self) -> int:
        """The library's handle."""
        with explained():
            return int(self.bindings.create())

    def described(self, product: Product, bias: int = 0) -> Described:
        """Describe a product to the library.

        Args:
            product: The product.
            bias: Address of the biases on the GPU, if the product has any.

        Raises:
            BuildError: the library refuses it.
        """
        with explained():
            return Described(self, product, bias)


class Described:
    """A product as cuBLASLt's descriptors. The library is column-major: to it y is (n, m), and b is the first factor.

    Args:
        library: The library.
        product: The product.
        bias: Address of the biases on the GPU, if the product has any.
    """

    def __init__(self, library: CublasLt, product: Product, bias: int) -> None:
        self._library, self.product = library, product
        lt = self._lt = library.bindings
        is_tf32 = product.tf32 and product.a.dtype is DType.FLOAT32
        self._operation = lt.matmul_desc_create(77 if is_tf32 else 68, 0)  # COMPUTE_32F_FAST_TF32, COMPUTE_32F; float32
        self._layouts: list[int] = []
        weakref.finalize(self, _destroy, lt, self._operation, self._layouts)
        kinds = lt.MatmulDescAttribute
        set_operation = functools.partial(_set, lt.matmul_desc_set_attribute, self._operation)
        set_operation(kinds.TRANSA, np.int32(product.b.transposed))
        set_operation(kinds.TRANSB, np.int32(product.a.transposed))
        set_operation(kinds.EPILOGUE, np.uint32(_epilogue(lt, product)))
        if product.bias:
            set_operation(kinds.BIAS_POINTER, np.int64(bias))
        self._layouts += [
            self._layout(product.b, product.k, product.n),
            self._layout(product.a, product.m, product.k),
            self._layout(product.c or product.y, product.m, product.n),
            self._layout(product.y, product.m, product.n),
        ]
        self._factors = np.ones(1, np.float32), np.full(1, 0.0 if product.c is None else 1.0, np.float32)

    def algorithms(self, count: int, workspace: int) -> list[tuple[Any, int]]:
        """Algorithms that the library's heuristics choose, the most promising first, each with the bytes of its workspace.

        Args:
            count: Number of algorithms, at most.
            workspace: Bytes of the largest workspace.

        Raises:
            BuildError: the library has no algorithm for the product.
        """
        lt = self._lt
        with explained():
            preference = lt.matmul_preference_create()
            try:
                kinds = lt.MatmulPreferenceAttribute
                set_preference = functools.partial(_set, lt.matmul_preference_set_attribute, preference)
                set_preference(kinds.MAX_WORKSPACE_BYTES, np.uint64(workspace))
                for operand in "ABCD":
                    kind = getattr(kinds, f"MIN_ALIGNMENT_{operand}_BYTES")
                    set_preference(kind, np.uint32(self._alignment(operand)))
                returned, results = np.zeros(1, np.int32), np.zeros(count, lt.matmul_heuristic_result_dtype)
                lt.matmul_algo_get_heuristic(
                    self._library.handle, self._operation, *self._layouts, preference, count, results.ctypes.data,
                    returned.ctypes.data,
                )  # fmt: skip
            finally:
                lt.matmul_preference_destroy(preference)
        valid = [results[index : index + 1] for index in range(int(returned[0])) if results["state"][index] == 0]
        return [(result["algo"].copy(), int(result["workspace_size"][0])) for result in valid]

    def launch(self, algorithm: Any, at: Sequence[int], workspace: tuple[int, int], stream: int) -> None:
        """Queue the product on a stream.

        Args:
            algorithm: One of `algorithms`.
            at: Addresses of a, b, y, and of c or 0.
            workspace: Address and bytes of the algorithm's workspace.
            stream: Handle of the stream.
        """
        a, b, y, c = at
        alpha, beta = self._factors
        b_layout, a_layout, c_layout, y_layout = self._layouts
        self._lt.matmul(
            self._library.handle, self._operation, alpha.ctypes.data, b, b_layout, a, a_layout, beta.ctypes.data,
            c or y, c_layout, y, y_layout, algorithm.ctypes.data, *workspace, stream,
        )  # fmt: skip

    def _layout(self, matrix: Matrix, rows: int, columns: int) -> int:
        """Create the column-major layout descriptor of a row-major matrix, and return its handle."""
        lt = self._lt
        sides = (rows, columns) if matrix.transposed else (columns, rows)
        layout = int(lt.matrix_layout_create(_TYPES[matrix.dtype], *sides, matrix.leading))
        if self.product.batch > 1:
            kinds = lt.MatrixLayoutAttribute
            _set(lt.matrix_layout_set_attribute, layout, kinds.BATCH_COUNT, np.int32(self.product.batch))
            _set(lt.matrix_layout_set_attribute, layout, kinds.STRIDED_BATCH_OFFSET, np.int64(matrix.batch_stride))
        return layout

    def _alignment(self, operand: str) -> int:
        """Alignment in bytes of all matrices of an operand, by cuBLASLt's letter for it: A, B, C or D."""
        product = self.product
        matrix = {"A": product.b, "B": product.a, "C": product.c or product.y, "D": product.y}[operand]
        step = matrix.batch_stride * matrix.dtype.itemsize if product.batch > 1 else 0
        return math.gcd(matrix.alignment, step)


@contextmanager
def explained() -> Iterator[None]:
    """Raise errors of cuBLASLt's bindings as `BuildError`."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "nvmath":
            raise
        raise BuildError(f"engine 'cuda': cuBLASLt: {error}", engine="cuda") from error


def _epilogue(lt: Any, product: Product) -> int:
    """The number of a product's epilogue in cuBLASLt: ``RELU_BIAS`` and its like."""
    name = {"linear": "", "relu": "RELU", "gelu_tanh": "GELU"}[product.activation]
    parts = [part for part in (name, "BIAS" if product.bias else "") if part]
    return int(getattr(lt.Epilogue, "_".join(parts) or "DEFAULT"))


def _set(setter: Any, descriptor: int, attribute: Any, value: Any) -> None:
    """Set an attribute of a descriptor by one of the library's functions."""
    array = np.asarray(value).reshape(1)
    setter(descriptor, int(attribute), array.ctypes.data, array.nbytes)


def _destroy(lt: Any, operation: int, layouts: list[int]) -> None:
    """Free the descriptors of a product."""
    for layout in layouts:
        lt.matrix_layout_destroy(layout)
    lt.matmul_desc_destroy(operation)
