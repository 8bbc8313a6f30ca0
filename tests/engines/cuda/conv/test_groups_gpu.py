"""Convolutions of groups on a GPU: every form of the kernels of matrix instructions, beside the definition."""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv.handwritten import HandwrittenProvider
from pytrtplugins.engines.cuda.conv.problem import ConvProblem, Operands, Scratch
from pytrtplugins.engines.cuda.conv.shape import ConvShape
from pytrtplugins.engines.cuda.conv.tactics import FP8_CAPABILITY
from pytrtplugins.engines.cuda.device.device import CudaDevice, tensor_at
from pytrtplugins.engines.cuda.device.elements import decoded, encoded
from pytrtplugins.engines.cuda.device.layout import channels_last
from pytrtplugins.engines.cuda.device.source import compile_kernel
from tests.engines.cuda.conv.definition import agrees
from tests.engines.cuda.conv.shapes import FP8, HALF, INT8, tactics_of
from tests.engines.cuda.host import convolve, copied, filled

pytestmark = pytest.mark.gpu
GROUPS = [(17, 4), (13, 8), (9, 16), (3, 24), (5, 32), (3, 64), (2, 128)]
"""How many, and the channels of each: not all fill the last tile, or 16 bytes."""
UNTOUCHED = 77


def case(kind, groups, width, stride, filters):
    """With a residual where there is no stride; 8 divides the sides then, so that tiles may be patches."""
    size, out = ((8, 16), (8, 16)) if stride == 1 else ((9, 11), (5, 6))
    x, y = channels_last((2, groups * width, *size), kind), channels_last((2, groups * filters, *out), kind)
    return ConvProblem(
        x=x, y=y, kernel=(3, 3), pads=(1, 1, 1, 1), strides=(stride, stride), groups=groups,
        activation="leaky", bounds=(0.1, 0.0), residual=y if stride == 1 else None,
    )  # fmt: skip


CASES = [
    *(case(kind, *group, stride, group[1]) for kind in (HALF, INT8, FP8) for group in GROUPS for stride in (1, 2)),
    case(INT8, 3, 48, 2, 20),
    case(HALF, 24, 1, 2, 3),
]


def forms(family, problem, capability):
    """A tactic of each form that groups meet: how wide tiles and units are; of them one that splits sums, one of patches."""
    found = [tactic for tactic in tactics_of(family, ConvShape.of(problem), 1000, capability) if tactic.tile_m < 192]
    keys = {}
    for tactic in sorted(found, key=lambda tactic: (tactic.stages, tactic.tile_m), reverse=True):
        if tactic.split_k == 1 or (tactic.split_k == 2 and not tactic.spatial_tile):
            keys[tactic.tile_n, tactic.depth, tactic.units, tactic.split_k, tactic.spatial_tile] = tactic
    return list(keys.values())


@pytest.fixture(scope="module")
def device():
    """The GPU, for which all kernels have been compiled."""
    from pytrtplugins.engines.cuda import CudaEngine

    if reason := CudaEngine.availability().reason:
        pytest.skip(reason)
    device = CudaDevice()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pool.map(lambda wanted: compile_kernel(wanted[0], wanted[1], device.capability), kernels(device.capability))
    return device


def kernels(capability):
    """Files and constants of all kernels that these tests run, each once."""
    found = {}
    for family, problem in itertools.product(["hopper", "halo", "mma"], CASES):
        for tactic in forms(family, problem, capability) if runs(family, problem, capability) else []:
            definitions = tactic.definitions(ConvShape.of(problem))
            found[(family, *definitions.items())] = f"conv_{family}.cu", definitions
    return list(found.values())


def runs(family, problem, capability):
    needed = FP8_CAPABILITY if problem.x.dtype is FP8 else 80
    if family == "mma":
        return capability >= needed
    return capability == 90 and (family == "hopper" or bool(forms(family, problem, 90)))


def given(problem, seed=1):
    """Operands, x and the residual; the padding of channels is zero."""
    random, kind = np.random.default_rng(seed), problem.x.dtype
    (k, c), codes = (problem.y.dims[1], problem.x.dims[1] // problem.groups), problem.x.dtype is not HALF

    def values(*dims):
        return random.integers(-127, 128, dims) if kind is INT8 else (30 if codes else 1) * random.standard_normal(dims)

    def tensor(form):
        return filled(form, encoded(np, values(*form.dims), form.dtype, {}))

    weights = values(k, c, 3, 3) * (1 if codes else (2 / 9 / c) ** 0.5)
    step = (9 * c) ** 0.5 * (73**2 if kind is INT8 else 30**2)  # what sums of products are about
    operands = Operands(
        load=lambda: weights.astype(kind.numpy),
        bias=random.standard_normal(k).astype(np.float32),
        scale=(random.uniform(0.8, 1.2, k) / step).astype(np.float32) if codes else None,
        y_scale=0.03 if codes else 1.0,
        residual_scale=0.01 if codes else 1.0,
    )
    return operands, tensor(problem.x), None if problem.residual is None else tensor(problem.residual)


@pytest.mark.parametrize("family", ["hopper", "halo", "mma"])
@pytest.mark.parametrize("problem", CASES, ids=lambda problem: problem.title)
def test_every_form_gives_the_definitions_numbers(device, family, problem):
    if not runs(family, problem, device.capability):
        pytest.skip(f"compute capability {device.capability} lacks the instructions")
    operands, x, residual = given(problem)
    wanted = filled(problem.y, 0)
    convolve(problem, operands, x, wanted, residual)
    expected = decoded(np, wanted.view, problem.y.dtype).astype(np.float64)
    provider, stream = HandwrittenProvider(device, family), device.new_streams(1)[0]
    tactics = forms(family, problem, device.capability)
    assert tactics
    with device.current():
        inputs = [None if each is None else copied(device, each) for each in (x, residual)]
        for tactic in tactics:
            y = tensor_at(device.xp, device.allocate(problem.y.bytes + 256), 0, problem.y)
            y.flat.fill(UNTOUCHED)
            launch = provider.prepare(problem, tactic.name, operands, Scratch())
            device.xp.cuda.get_current_stream().synchronize()
            launch(inputs[0], y, inputs[1], stream)
            stream.synchronize()
            host = tensor_at(np, device.download(y.flat).view(np.uint8), 0, problem.y)
            assert agrees(host.view, expected, problem.y.dtype, problem.x.dtype), tactic.name
            n, k, h, w = problem.y.dims
            pixels = host.flat[: n * h * w * problem.y.pitch].reshape(-1, problem.y.pitch)
            assert not pixels[:, k : problem.filters].any(), tactic.name
            assert (pixels[:, problem.filters :] == UNTOUCHED).all(), tactic.name
