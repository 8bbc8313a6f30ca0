"""Products by cuBLASLt, with a library of the test's making that computes in NumPy what it was told, columns first."""

import ctypes
import enum
import gc
import itertools
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv import cublaslt
from pytrtplugins.engines.cuda.conv.cublaslt import CublasLtProvider
from pytrtplugins.engines.cuda.conv.problem import ConvProblem, DirectProvider, Operands, Scratch
from pytrtplugins.engines.cuda.device.batches import batched
from pytrtplugins.engines.cuda.device.cublaslt import cublaslt_version, stored
from pytrtplugins.engines.cuda.device.device import HostDevice, Tensor
from pytrtplugins.engines.cuda.device.layout import Format, Strides, channels_last, linear
from pytrtplugins.errors import BuildError, MissingExtraError
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import filled
from tests.measures import relative

SINGLE, HALF, CODES = DType.FLOAT32, DType.FLOAT16, DType.INT8
KINDS = {0: np.float32, 2: np.float16}
STREAM = SimpleNamespace(ptr=0)


class MatmulDescAttribute(enum.IntEnum):
    TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8


class MatrixLayoutAttribute(enum.IntEnum):
    BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6


class MatmulPreferenceAttribute(enum.IntEnum):
    MAX_WORKSPACE_BYTES = 1
    MIN_ALIGNMENT_A_BYTES, MIN_ALIGNMENT_B_BYTES, MIN_ALIGNMENT_C_BYTES, MIN_ALIGNMENT_D_BYTES = 5, 6, 7, 8


class Epilogue(enum.IntEnum):
    DEFAULT, RELU, BIAS, RELU_BIAS, GELU, GELU_BIAS = 1, 2, 4, 6, 32, 36


class Library(ModuleType):
    """What the engine asks of cuBLASLt's bindings. ``left`` counts descriptors that were not destroyed."""

    MatmulDescAttribute, MatrixLayoutAttribute = MatmulDescAttribute, MatrixLayoutAttribute
    MatmulPreferenceAttribute, Epilogue = MatmulPreferenceAttribute, Epilogue
    matmul_heuristic_result_dtype = np.dtype(
        [("algo", [("data_", "<u8", (8,))]), ("workspace_size", "<u8"), ("state", "<i4"), ("waves_count", "<f4"), ("reserved", "<i4", (4,))]
    )  # fmt: skip

    def __init__(self, algorithms=3):
        super().__init__("nvmath.bindings.cublasLt")
        self.algorithms, self.objects, self.numbers, self.ran = algorithms, {}, itertools.count(1), []
        self.preferences = []

    @property
    def left(self):
        return len(self.objects)

    def _new(self, made):
        number = next(self.numbers)
        self.objects[number] = made
        return number

    def _set(self, target, attribute, address, size):
        self.objects[target][attribute] = int.from_bytes(ctypes.string_at(address, size), "little", signed=True)

    def _destroy(self, target):
        del self.objects[target]

    def create(self):
        return 7

    def matmul_desc_create(self, compute, scale):
        assert scale == 0
        return self._new({"compute": compute, MatmulDescAttribute.TRANSA: 0, MatmulDescAttribute.TRANSB: 0})

    def matrix_layout_create(self, kind, rows, columns, leading):
        assert leading >= rows
        return self._new({"kind": KINDS[kind], "sides": (rows, columns), "leading": leading})

    def matmul_preference_create(self):
        return self._new({})

    matmul_desc_set_attribute = matrix_layout_set_attribute = matmul_preference_set_attribute = _set
    matmul_desc_destroy = matrix_layout_destroy = matmul_preference_destroy = _destroy

    def matmul_algo_get_heuristic(self, handle, operation, a, b, c, d, preference, count, results, found):
        assert handle == 7
        self.preferences.append(dict(self.objects[preference]))
        given = min(count, self.algorithms)
        rows = np.zeros(given, self.matmul_heuristic_result_dtype)
        rows["algo"]["data_"][:, 0], rows["workspace_size"] = np.arange(given), 100
        ctypes.memmove(results, rows.tobytes(), rows.nbytes)
        ctypes.memmove(found, np.int32(given).tobytes(), 4)

    def matmul(self, handle, operation, alpha, a, a_at, b, b_at, beta, c, c_at, d, d_at, algo, workspace, size, stream):
        self.ran.append(int.from_bytes(ctypes.string_at(algo, 8), "little"))
        assert size == 100
        assert workspace % 256 == 0
        at = self.objects[operation]
        scales = [ctypes.c_float.from_address(address).value for address in (alpha, beta)]
        count = self.objects[d_at].get(MatrixLayoutAttribute.BATCH_COUNT, 1)
        for index in range(count):
            first, second, added, result = (
                self._matrix(address, layout, index) for address, layout in ((a, a_at), (b, b_at), (c, c_at), (d, d_at))
            )
            first = first.T if at[MatmulDescAttribute.TRANSA] else first
            second = second.T if at[MatmulDescAttribute.TRANSB] else second
            sums = scales[0] * (first.astype(np.float64) @ second.astype(np.float64))
            if scales[1]:
                sums = sums + scales[1] * added
            name = Epilogue(at[MatmulDescAttribute.EPILOGUE]).name
            if "BIAS" in name:
                address = at[MatmulDescAttribute.BIAS_POINTER]
                size = len(result) * result.itemsize
                bias = np.frombuffer(ctypes.string_at(address, size), result.dtype)
                sums = sums + bias[:, None]
            if "RELU" in name:
                sums = np.maximum(sums, 0)
            if "GELU" in name:
                sums = sums / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (sums + 0.044715 * sums**3)))
            result[...] = sums

    def _matrix(self, address, layout, index):
        at = self.objects[layout]
        kind, (rows, columns), leading = np.dtype(at["kind"]), at["sides"], at["leading"]
        address += index * at.get(MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, 0) * kind.itemsize
        size = ((columns - 1) * leading + rows) * kind.itemsize
        memory = np.frombuffer((ctypes.c_char * size).from_address(address), kind)
        return np.lib.stride_tricks.as_strided(memory, (rows, columns), (kind.itemsize, leading * kind.itemsize))


@pytest.fixture
def library(monkeypatch):
    made = Library()
    for name in ("nvmath", "nvmath.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublasLt", made)
    monkeypatch.setattr(cublaslt, "_address", lambda array: array.ctypes.data)
    return made


def problem(x=SINGLE, y=None, c=24, k=40, pixels=7, **changes):
    y = y or x
    forms = {"x": channels_last((1, c, pixels, 1), x), "y": channels_last((1, k, pixels, 1), y, dense=True)}
    return replace(ConvProblem(**forms, kernel=(1, 1), tensor_cores=x is HALF), **changes)


def run(provider, case, tactic):
    random = np.random.default_rng(3)
    (_, c, _, _), (_, k, _, _) = case.x.dims, case.y.dims
    weights = random.standard_normal((k, c, 1, 1)).astype(np.float32) / 4
    bias = random.standard_normal(k).astype(np.float32)
    x, y = filled(case.x, random.standard_normal(case.x.dims), 77), filled(case.y, 77, 77)
    added = case.residual
    residual = None if added is None else filled(added, random.standard_normal(added.dims), 77)
    scratch = Scratch()
    launch = provider.prepare(case, tactic, Operands(load=lambda: weights, bias=bias), scratch)
    scratch.fill(HostDevice())
    launch(x, y, residual, STREAM)
    return y.view.astype(np.float64)


def assert_as_direct(case, tactic):
    found, wanted = run(CublasLtProvider(HostDevice()), case, tactic), run(DirectProvider(HostDevice()), case, "direct")
    assert relative(found, wanted) <= (2e-3 if HALF in (case.x.dtype, case.y.dtype) else 1e-5)


RESIDUALS = {"residual": channels_last((1, 40, 7, 1), SINGLE), "residual_activation": "leaky"}


@pytest.mark.parametrize(
    ("changes", "form"),
    [
        ({}, "fused"),
        ({"x": HALF}, "fused"),
        ({"x": HALF, "y": SINGLE}, "fused"),
        ({"x": SINGLE, "y": HALF}, "plain"),
        ({"c": 13, "k": 21, "pixels": 1}, "fused"),
        ({"activation": "leaky"}, "fused"),
        ({"activation": "leaky", "bounds": (0.1, 0.0)}, "plain"),
        ({"activation": "gelu_tanh"}, "fused"),
        ({"activation": "gelu"}, "plain"),
        ({"activation": "swish", "x": HALF}, "plain"),
        (RESIDUALS, "fused"),
        ({**RESIDUALS, "activation": "leaky"}, "plain"),
        ({**RESIDUALS, "residual": channels_last((1, 40, 7, 1), HALF)}, "plain"),
    ],
)
def test_a_product_is_the_plain_kernels(library, changes, form):
    case = problem(**changes)
    tactics = CublasLtProvider(HostDevice()).tactics(case)
    assert tactics == [f"{form}:{number}" for number in range(3)]
    assert_as_direct(case, f"{form}:1")
    assert library.ran == [1]


def test_a_convolution_of_pixels_with_gaps_is_a_product_too(library):
    case = replace(problem(), x=Format((2, 24, 3, 5), HALF, 40), y=Format((2, 40, 3, 5), HALF, 64), tensor_cores=True)
    assert CublasLtProvider(HostDevice()).tactics(case)[0] == "fused:0"
    assert_as_direct(case, "fused:0")


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": (3, 3), "pads": (1, 1, 1, 1)},
        {"strides": (2, 2)},
        {"groups": 2},
        {"x": channels_last((1, 24, 7, 1), CODES), "y": channels_last((1, 40, 7, 1), CODES, dense=True)},
        {"y": channels_last((1, 21, 7, 1), SINGLE)},  # whose padding must be written
        {"pool": True},
    ],
)
def test_other_problems_are_left_to_others(library, changes):
    assert CublasLtProvider(HostDevice()).tactics(replace(problem(), **changes)) == []


def test_float32_is_rounded_to_tf32_only_where_it_may_be(library):
    provider = CublasLtProvider(HostDevice())
    for allowed, compute in ((False, 68), (True, 77)):
        described = provider.library.described(cublaslt._product(problem(tensor_cores=allowed), "fused"), 0)
        assert library.objects[described._operation]["compute"] == compute


def test_no_descriptor_is_left(library):
    provider = CublasLtProvider(HostDevice())
    provider.tactics(problem())
    run(provider, problem(), "fused:0")
    assert library.left == 0


@pytest.mark.parametrize("tactic", ["fused:3", "fused:x", "other:0", "fused", "plain:-1"])
def test_a_tactic_that_is_not_here_is_an_error(library, tactic):
    with pytest.raises(BuildError, match="cuBLASLt has no"):
        run(CublasLtProvider(HostDevice()), problem(), tactic)


def test_what_the_library_raises_is_a_build_error(library, monkeypatch):
    refused = type("cuBLASLtError", (Exception,), {"__module__": "nvmath.bindings.cublasLt"})

    def refuse(*_):
        raise refused("NOT_SUPPORTED (15)")

    monkeypatch.setattr(library, "matmul_algo_get_heuristic", refuse)
    assert CublasLtProvider(HostDevice()).tactics(problem()) == []
    with pytest.raises(BuildError, match="cuBLASLt: NOT_SUPPORTED"):
        run(CublasLtProvider(HostDevice()), problem(), "fused:0")
    gc.collect()  # from Python 3.13 on the error is part of a cycle
    assert library.left == 0


def test_nothing_is_loaded_before_it_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath", None)
    provider = CublasLtProvider(HostDevice())
    with pytest.raises(MissingExtraError, match="nvmath-python"):
        provider.tactics(problem())


def test_without_bindings_there_is_no_version(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cublaslt_version() == ""


BATCHES = [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (1, 6, 4, 5)),
    ((2, 6, 3, 4), (2, 1, 4, 5)),
    ((2, 6, 3, 4), (6, 4, 5)),
    ((2, 3, 5, 4, 2), (2, 1, 5, 2, 3)),
    ((2, 1, 5), (2, 5, 1)),
    ((4, 7, 1), (4, 1, 9)),
    ((1, 1, 1), (1, 1, 1)),
    ((5,), (5, 3)),
    ((5,), (2, 5, 3)),
    ((2, 3, 5), (5,)),
    ((5,), (5,)),
    ((12, 19, 64), (12, 64, 19)),
]


@pytest.mark.parametrize("kind", [SINGLE, HALF])
@pytest.mark.parametrize(("a", "b"), BATCHES, ids=str)
def test_a_product_of_computed_tensors_is_numpys(library, a, b, kind):
    random, provider, scratch = np.random.default_rng(1), CublasLtProvider(HostDevice()), Scratch()
    first, second = (filled(linear(dims, kind), random.standard_normal(dims), 77) for dims in (a, b))
    wanted = np.matmul(first.view.astype(np.float64), second.view.astype(np.float64))
    y, room = filled(linear(wanted.shape, kind), 77, 77), (1e-5, 1e-6) if kind is SINGLE else (2e-3, 2e-3)
    launch = provider.product(first, second, y, scratch)
    scratch.fill(HostDevice())
    launch(STREAM)
    np.testing.assert_allclose(y.view, wanted, *room)


def test_factors_are_parts_of_other_tensors(library):
    """Heads of queries and keys side by side in the rows of one tensor, and what is said of where they begin."""
    random, provider, scratch = np.random.default_rng(1), CublasLtProvider(HostDevice()), Scratch()
    whole = filled(linear((2, 5, 2, 3, 4), HALF), random.standard_normal((2, 5, 2, 3, 4)))
    parts = []
    for which, order in ((0, (0, 2, 1, 3)), (1, (0, 2, 3, 1))):
        view = whole.view[:, :, which].transpose(order)
        form = Strides(view.shape, HALF, tuple(stride // 2 for stride in view.strides))
        parts.append(Tensor(whole.flat[12 * which :], form, view))
    y = filled(linear((2, 3, 5, 5), HALF), 77, 77)
    launch = provider.product(parts[0], parts[1], y, scratch)
    scratch.fill(HostDevice())
    launch(STREAM)
    np.testing.assert_allclose(y.view, np.matmul(*(part.view.astype(np.float64) for part in parts)), 2e-3, 2e-3)
    kinds = MatmulPreferenceAttribute
    assert [
        library.preferences[-1][kinds.MIN_ALIGNMENT_A_BYTES],
        library.preferences[-1][kinds.MIN_ALIGNMENT_B_BYTES],
    ] == [8, 8]
    assert library.preferences[-1][kinds.MAX_WORKSPACE_BYTES] == 32 << 20  # what NVIDIA advises for Hopper


def test_matrices_that_begin_anywhere_are_said_to_be_aligned_less(library):
    provider = CublasLtProvider(HostDevice())
    product, _ = batched(linear((3, 5, 7), HALF), linear((3, 7, 8), HALF), linear((3, 5, 8), HALF))
    provider.library.described(product).algorithms(1, 1024)
    kinds = MatmulPreferenceAttribute
    found = library.preferences[-1]
    assert [found[kind] for kind in (kinds.MIN_ALIGNMENT_A_BYTES, kinds.MIN_ALIGNMENT_B_BYTES)] == [16, 2]
    assert [found[kind] for kind in (kinds.MIN_ALIGNMENT_C_BYTES, kinds.MIN_ALIGNMENT_D_BYTES)] == [16, 16]


def test_a_matrix_with_gaps_along_both_axes_is_none():
    assert stored(3, 4, (9, 1)) == (9, False)
    assert stored(3, 4, (1, 9)) == (9, True)
    with pytest.raises(ValueError, match="3 rows and 4 columns with strides"):
        stored(3, 4, (20, 2))
