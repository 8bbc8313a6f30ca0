"""Plugins whose launches have Python's arithmetic in them, which an exported library must do itself."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

import pytrtplugins as ptp
from pytrtplugins.errors import FieldError
from pytrtplugins.export._values import TracedFloat
from pytrtplugins.tensor import DType, check_rank


@ptp.plugin(namespace="test.export")
class Numbers(ptp.Plugin):
    """Python's arithmetic, done by the exported code: the kernel writes down what it was given."""

    a: int = 7
    b: int = -3
    x: float = 0.3
    flag: bool = False
    text: str = "one"

    kernel = ptp.CudaKernel.from_file("layers.cu", "write_numbers")

    def output_dims(self, shape):
        check_rank(shape, 2, "Numbers")
        return (8,), (3,)

    def output_dtypes(self, shape):
        return DType.INT64, DType.INT64  # the second one holds doubles

    def supports_format(self, position, descs):
        wanted = DType.INT64 if position else DType.FLOAT32
        return descs[position].dtype is wanted and descs[position].layout == "linear"

    def numbers(self, dims):
        """Everything that stands in an expression."""
        n, m = dims
        a, b, x = self.a, self.b, self.x
        largest = max(a, b, n) if self.flag or a > 0 else min(a, b, n)
        kind = {1: 10, 2: 20}[1 if self.text == "one" else 2] if self.text in ("one", "two") else 30
        return (
            a // b - n * m, a % b + (-a) // n, -(-a // m) * abs(b), largest + kind, math.ceil(x * a / b) + math.floor(x + n),
            (a + b) ** 3 - (m - 1) * (2 - a), x * a - 0.25, x // 0.7 + b % 0.9, (a / b if a != b else 1) * x - n,
            (a <= b) != self.flag, (n * 2 + m) % 256,
        )  # fmt: skip

    def compute(self, shape):
        *whole, g, h, i, j, k = self.numbers(shape.shape)
        wide = np.array([np.float32(g), np.float32(h), i], np.float64)
        return np.array([*whole, j, k], np.int64), wide.view(np.int64)

    def enqueue(self, inputs, outputs, workspace, stream):
        y, z = outputs
        self.kernel.launch(y, z.view(np.float64), *self.numbers(inputs[0].shape), threads=1, stream=stream)


FLOATS = {
    "x + y": lambda x, y, a, b: x + y,
    "x - y": lambda x, y, a, b: x - y,
    "x * y": lambda x, y, a, b: x * y,
    "x / y": lambda x, y, a, b: x / y,
    "x // y": lambda x, y, a, b: x // y,
    "x % y": lambda x, y, a, b: x % y,
    "x // 0.7": lambda x, y, a, b: x // 0.7,
    "0.1 % x": lambda x, y, a, b: 0.1 % x,
    "0.3 * x // (0.1 * y)": lambda x, y, a, b: 0.3 * x // (0.1 * y),
    "0.3 * x % (0.1 * y)": lambda x, y, a, b: 0.3 * x % (0.1 * y),
    "-x": lambda x, y, a, b: -x,
    "abs(x)": lambda x, y, a, b: abs(x),
    "0.0 - x": lambda x, y, a, b: 0.0 - x,
    "(0.1 * x)**3": lambda x, y, a, b: (0.1 * x) ** 3,
    "x**2": lambda x, y, a, b: x**2,
    "x**8": lambda x, y, a, b: x**8,
    "x * y + 0.1": lambda x, y, a, b: x * y + 0.1,  # two roundings, not one
    "max(x, y)": lambda x, y, a, b: max(x, y),
    "min(x, y, 0.0)": lambda x, y, a, b: min(x, y, 0.0),
    "0.0 if x < y else -0.0": lambda x, y, a, b: 0.0 if x < y else -0.0,
    "a / b": lambda x, y, a, b: a / b,
    "a * x": lambda x, y, a, b: a * x,
    "a // x": lambda x, y, a, b: a // x,
    "x % b": lambda x, y, a, b: x % b,
}
WHOLE = {
    "a // b": lambda x, y, a, b: a // b,
    "a % b": lambda x, y, a, b: a % b,
    "-(a // 2) // b": lambda x, y, a, b: -(a // 2) // b,
    "7 // a": lambda x, y, a, b: 7 // a,
    "-7 % b": lambda x, y, a, b: -7 % b,
    "a + b": lambda x, y, a, b: a + b,
    "a - b": lambda x, y, a, b: a - b,
    "a * b": lambda x, y, a, b: a * b,
    "a**3": lambda x, y, a, b: a**3,
    "abs(a)": lambda x, y, a, b: abs(a),
    "ceil(x)": lambda x, y, a, b: math.ceil(x),
    "floor(x / y)": lambda x, y, a, b: math.floor(x / y),
    "comparisons of x and y": lambda x, y, a, b: _comparisons(x, y),
    "comparisons of x and x": lambda x, y, a, b: _comparisons(x, x),
    "comparisons of a and x": lambda x, y, a, b: _comparisons(a, x),
    "comparisons of a and b": lambda x, y, a, b: _comparisons(a, b),
}


def _comparisons(x, y):
    return (x < y) + (x <= y) * 2 + (x > y) * 4 + (x >= y) * 8 + (x == y) * 16 + (x != y) * 32


@ptp.plugin(namespace="test.export")
class Formula(ptp.Plugin):
    """One formula of Python's arithmetic at a time, since some have no value."""

    formula: str = "x / y"
    x: float = 1.0
    y: float = 2.0
    a: int = 3
    b: int = 4

    floats = ptp.CudaKernel.from_file("layers.cu", "write_float")
    whole = ptp.CudaKernel.from_file("layers.cu", "write_whole")

    def validate(self):
        if self.formula not in (*FLOATS, *WHOLE):
            raise FieldError(f"Formula.formula: unknown: {self.formula}", name="formula")

    def output_dims(self, shape):
        return (1,)

    def output_dtypes(self, shape):
        return DType.INT64  # of floats, the bits

    def supports_format(self, position, descs):
        wanted = DType.INT64 if position else DType.FLOAT32
        return descs[position].dtype is wanted and descs[position].layout == "linear"

    def value(self):
        """A float, or a whole number."""
        *others, last = {**FLOATS, **WHOLE}.items()
        chosen = next((formula for name, formula in others if self.formula == name), last[1])
        return chosen(self.x, self.y, self.a, self.b)

    def compute(self, shape):
        if self.formula in WHOLE:
            return np.array([self.value()], np.int64)
        return np.array([self.value()], np.float64).view(np.int64)

    def enqueue(self, inputs, outputs, workspace, stream):
        value = self.value()
        if isinstance(value, (float, TracedFloat)):
            self.floats.launch(outputs[0].view(np.float64), value, threads=1, stream=stream)
        else:
            self.whole.launch(outputs[0], value, threads=1, stream=stream)


QUESTIONS = {
    "x < y": lambda x, y: x < y,
    "x <= y": lambda x, y: x <= y,
    "x > y": lambda x, y: x > y,
    "x >= y": lambda x, y: x >= y,
    "x == y": lambda x, y: x == y,
    "x != y": lambda x, y: x != y,
    "2 > x": lambda x, y: x < 2,
    "both": np.logical_and,
    "either": np.logical_or,
    "neither": lambda x, y: np.logical_not(np.logical_or(x, y)),
    "not x": lambda x, y: np.logical_not(x),
    "&": lambda x, y: (x < y) & (x > 0),
    "|": lambda x, y: (x < y) | (y == 1),
    "~": lambda x, y: ~(x < y),
    "finite": lambda x, y: np.isfinite(x - y),
    "nan": lambda x, y: np.isnan(x * y),
    "itself": lambda x, y: np.minimum(abs(x), np.sqrt(abs(y))),
}


@ptp.plugin(namespace="test.export")
class Question(ptp.Plugin):
    """What is asked of two arrays, element by element: true of any of them, of all of them."""

    question: str
    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]

    whole = ptp.CudaKernel.from_file("layers.cu", "write_whole")

    def validate(self):
        if self.x.ndim != 1 or self.y.ndim != 1 or self.x.size != self.y.size:
            raise FieldError("Question: expected arrays of one axis and size")
        if self.question not in (*QUESTIONS,):
            raise FieldError("Question.question: unknown", name="question")

    def output_dims(self, shape):
        return (1,)

    def output_dtypes(self, shape):
        return DType.INT64

    def supports_format(self, position, descs):
        wanted = DType.INT64 if position else DType.FLOAT32
        return descs[position].dtype is wanted and descs[position].layout == "linear"

    def value(self):
        """0: of none; 1: of some; 3: of all."""
        *others, last = QUESTIONS.items()
        answers = next((ask for name, ask in others if self.question == name), last[1])(self.x, self.y)
        return (1 if answers.any() else 0) + (2 if answers.all() else 0)

    def compute(self, shape):
        return np.array([self.value()], np.int64)

    def enqueue(self, inputs, outputs, workspace, stream):
        self.whole.launch(outputs[0], self.value(), threads=1, stream=stream)
