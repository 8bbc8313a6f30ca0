"""The stem's weights as its threads read them, and what it cannot do."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv import stem_kernel
from pytrtplugins.engines.cuda.conv.stem_kernel import StemKernel, pack_stem
from tests.engines.cuda.conv.shapes import FP8, HALF, INT8, stem


@pytest.mark.parametrize("element", [HALF, INT8, FP8])
def test_the_stems_weights_lie_as_its_threads_read_them(element):
    random = np.random.default_rng(0)
    weights = random.integers(-8, 8, (32, 3, 3, 3)).astype(element.numpy)
    packed = pack_stem(stem(element), weights)
    for filter_ in range(32):
        # thread (group, quarter), block: w[block][t] is row 8 * block + group; sums 2 * quarter + i
        quarter, held = filter_ // 8, filter_ % 8
        row = packed[held // 2 * 8 + 2 * quarter + held % 2]
        for tap in range(12):
            expected = [*weights[filter_, :, tap // 3, tap % 3], 0] if tap < 9 else [0] * 4
            np.testing.assert_array_equal(row[tap], expected)


def test_a_stem_says_what_it_cannot_do():
    first = stem(HALF)
    assert first.unsupported() == ""
    assert "5 channels" in dataclasses.replace(first, c=5).unsupported()
    assert "odd" in dataclasses.replace(first, h=5).unsupported()


def test_other_addresses_have_another_launch(monkeypatch):
    queued = []
    monkeypatch.setattr(stem_kernel, "load_kernel", lambda *_: None)
    monkeypatch.setattr(StemKernel, "_prepare", lambda self, *key: lambda stream: queued.append(key))
    kernel, addresses = StemKernel(stem(HALF), 90), (1, 2, 3, 4, 5)
    keys: list[Any] = [(*addresses[:place], 9, *addresses[place + 1 :], True) for place in range(5)] + [
        (*addresses, False)
    ]
    for key in [(*addresses, True), *keys]:
        kernel.launch(*key[:5], stream=0, programmatic_launch=key[5])
    assert queued == [(*addresses, True), *keys]
