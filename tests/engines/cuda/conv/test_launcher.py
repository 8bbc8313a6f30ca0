"""The arguments of kernels: the structures of the sources, worked out from a shape."""

from types import SimpleNamespace

import pytest

from pytrtplugins.engines.cuda.conv import stem_kernel
from pytrtplugins.engines.cuda.conv.launcher import Addresses, ConvArgs, conv_arguments
from pytrtplugins.engines.cuda.conv.tactics import Tactic
from pytrtplugins.engines.cuda.device import pool_kernel
from pytrtplugins.engines.cuda.device.layout import channels_last
from pytrtplugins.engines.cuda.device.source import KERNELS
from tests.engines.cuda.conv.shapes import HALF, square


@pytest.mark.parametrize(
    ("file", "struct", "found"),
    [
        ("common", "ConvArgs", ConvArgs),
        ("stem", "StemArgs", stem_kernel.StemArgs),
        ("pool", "PoolArgs", pool_kernel._Args),
    ],
)
def test_arguments_are_the_sources_struct(file, struct, found):
    source = (KERNELS / f"{file}.cu").read_text()
    body = source[source.index(f"struct {struct} {{") : source.index("};", source.index(f"struct {struct} {{"))]
    lines = [line.partition("//")[0].strip() for line in body.splitlines()[1:]]
    words = " ".join(lines).replace("const ", "").replace("*", "").replace(",", " ").replace(";", " ").split()
    types = ("char", "uint2", "long", "int", "float")
    assert [word for word in words if word not in types] == [name for name, *_ in found._fields_]


def test_arguments_are_worked_out():
    shape = square(2, 8, 16, 40, 3, HALF)
    numbers = conv_arguments(shape, Tactic("mma", 64, 32, 32), Addresses(16, 32, 48, 64, 80), 1.0, 1.0)
    assert (numbers.units, numbers.chunks, numbers.tiles_n, numbers.pixels, numbers.vector) == (9, 1, 2, 128, 1)
    assert conv_arguments(shape, Tactic("mma", 64, 32, 32), Addresses(16, 32, 48, 64, 82), 1.0, 1.0).vector == 0


def test_a_pool_is_launched_on_the_addresses_that_it_is_given(monkeypatch):
    runs, prepared = [], []

    def launch(function, grid, block, arguments, programmatic_launch):
        prepared.append(arguments[0])
        return lambda stream: runs.append((arguments[0].x, arguments[0].y, stream))

    monkeypatch.setattr(pool_kernel, "load_kernel", lambda *arguments: SimpleNamespace())
    monkeypatch.setattr(pool_kernel, "Launch", launch)
    window = pool_kernel.Window()
    kernel = pool_kernel.PoolKernel(channels_last((1, 8, 4, 4), HALF), channels_last((1, 8, 2, 2), HALF), window, 90)
    places = [(16, 32, 0), (16, 48, 0), (64, 32, 1), (16, 32, 2)]
    for place in places:
        kernel.launch(*place)
    assert runs == places
    assert len(prepared) == 3  # the last is as the first
