"""Activations: their numbers in Python and in the sources of kernels are the same ones."""

import re

from pytrtplugins.engines.cuda.device import source
from pytrtplugins.engines.cuda.device.activation import ACTIVATIONS, Activation, activation_numbers


def test_sources_know_no_other_activations():
    texts = [path.read_text(encoding="utf-8") for path in source.KERNELS.glob("*.cu")]
    assert {name for text in texts for name in re.findall(r"\bACTIVATION_(\w+)", text)} <= set(Activation.__members__)
    assert len(set(Activation)) == len(Activation.__members__)


def test_the_numbers_stand_before_the_formulas():
    numbers = dict(re.findall(r"ACTIVATION_(\w+) = (\d+)", activation_numbers()))
    assert {name.lower(): int(number) for name, number in numbers.items()} == ACTIVATIONS
    for text in (source.sources("activations.cu"), source.kernel_text("conv_mma.cu", {})):
        assert text.count(activation_numbers()) == 1
        assert text.index(activation_numbers()) < text.index("plain_activation")


def test_other_numbers_are_other_kernels(monkeypatch):
    source.kernels_digest.cache_clear()
    before = source.kernels_digest()
    source.kernels_digest.cache_clear()
    monkeypatch.setattr(source, "activation_numbers", lambda: "enum Activation {};\n")
    assert source.kernels_digest() != before
    source.kernels_digest.cache_clear()
