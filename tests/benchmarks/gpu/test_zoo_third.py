"""The third zoo is what its seed draws from timm's list."""

import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.gpu.zoo_third import SEED, SIDES, draw


@pytest.fixture
def stub_timm(monkeypatch):
    """60 networks of 20 modules; those of modules 0 to 4 are too large in images, of 5 to 9 in weights."""

    def number(name):
        return int(name[1:]) % 20

    def create_model(name):
        return torch.nn.Linear(10_001 if 5 <= number(name) < 10 else 9_999, 10_000, bias=False)

    stub = SimpleNamespace(
        list_models=lambda: [f"n{each}" for each in range(60)],
        model_entrypoint=lambda name: SimpleNamespace(__module__=f"module{number(name)}"),
        get_pretrained_cfg=lambda name: SimpleNamespace(input_size=(3, 0, 288 if number(name) < 5 else 256)),
        create_model=create_model,
    )
    monkeypatch.setitem(sys.modules, "timm", stub)


@pytest.mark.parametrize("seed", [1, 2])
def test_ten_networks_of_different_modules_are_drawn(stub_timm, seed):
    found = draw(seed)
    assert set(found.values()) == {256}
    assert sorted(int(name[1:]) % 20 for name in found) == list(range(10, 20))


def test_the_seed_decides(stub_timm):
    assert draw(1) == draw(1)
    assert list(draw(1)) != list(draw(2))


def test_the_zoo_is_what_its_seed_draws():
    timm = pytest.importorskip("timm", exc_type=ImportError)
    if timm.__version__ != "1.0.31":
        pytest.skip("other releases of timm have other networks")
    assert draw(SEED) == SIDES
