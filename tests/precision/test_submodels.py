"""Layers in groups that fit into memory together."""

import inspect
from types import SimpleNamespace

import pytest

from pytrtplugins.precision import search
from pytrtplugins.precision.submodels import in_groups


@pytest.mark.parametrize(
    ("sizes", "limit", "groups"),
    [
        ([4, 6], 10, [[4, 6]]),
        ([4, 7], 10, [[4], [7]]),
        ([20, 1, 9, 1], 10, [[20], [1, 9], [1]]),
        ([], 10, []),
    ],
)
def test_groups_are_as_large_as_the_limit_lets_them(sizes, limit, groups):
    layers = [SimpleNamespace(bytes=size) for size in sizes]
    assert [[layer.bytes for layer in group] for group in in_groups(layers, limit)] == groups


def test_a_group_has_256_mib_by_default():
    assert inspect.signature(search).parameters["limit_bytes"].default == 268_435_456
