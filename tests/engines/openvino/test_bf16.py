"""bf16 on engine ``cpu``, where the CPU has it."""

from __future__ import annotations

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import UsageError
from tests.engines.networks import conv_net
from tests.measures import relative


def built(precision, **settings):
    return ptp.build(conv_net(), engine="cpu", precision=precision, settings=settings, progress=False)


def test_always_means_that_nothing_is_timed_and_values_are_rounded(tmp_path):
    try:
        engine = built("bf16", bf16="always")
    except ptp.errors.UnavailableError as error:
        pytest.skip(str(error))
    engine.save(tmp_path / "net.engine")
    exact = built("fp32")
    x = {exact.inputs[0].name: np.random.default_rng(0).standard_normal(exact.inputs[0].dims, np.float32)}
    (wanted,) = exact.create_context().run(x).values()
    for each in (engine, ptp.load_engine(tmp_path / "net.engine")):
        assert "float layers" not in each.choices
        (found,) = each.create_context().run(x).values()
        assert 1e-4 < relative(found, wanted) < 2e-2


def test_another_word_is_refused():
    with pytest.raises(UsageError, match="setting bf16: expected 'measured' or 'always', found 'never'"):
        built("fp32", bf16="never")
