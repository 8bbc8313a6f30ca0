"""Engines call a plugin's methods in the order of docs/explanation/lifecycle.md."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import pytrtplugins as ptp
from tests.engines.networks import conv_net, image
from tests.user_plugins import Copy

CALLS: list[str] = []


@ptp.plugin(namespace="test.engines")
class Witness(Copy):
    """Writes down what is called; x + 1 with scratch memory."""

    def compute(self, x):
        return x + x.dtype.type(1)

    def clone(self):
        CALLS.append("clone")
        return super().clone()

    def configure(self, inputs, outputs):
        CALLS.append(f"configure {inputs[0].dims[0]}")

    def workspace_size(self, inputs, outputs):
        return 4 * int(np.prod(inputs[0].dims))

    def initialize(self):
        CALLS.append("initialize")

    def enqueue(self, inputs, outputs, workspace, stream):
        CALLS.append("enqueue")
        (x,), (y,) = inputs, outputs
        scratch = workspace.view(np.float32)[: x.size].reshape(x.shape)
        scratch[...] = x
        np.add(scratch, 1, out=y)
        assert (stream is None) == isinstance(x, np.ndarray)  # on a GPU arrays are CuPy's

    def terminate(self):
        CALLS.append("terminate")


def test_configure_initialize_enqueue_terminate_come_in_order(engine_name):
    engine = ptp.build(conv_net(Witness(), batch="N"), engine=engine_name)
    CALLS.clear()
    with engine.create_context() as context:
        for batch in (1, 1, 2):
            context.run({"data": image(batch)})
    life = [call for call in CALLS if call != "clone"]
    if engine_name == "cuda":  # a clone and a captured graph for each shape
        assert list(dict.fromkeys(life)) == ["configure 1", "initialize", "enqueue", "configure 2", "terminate"]
        assert life.count("initialize") == life.count("terminate") == 2
        return
    run = ["configure 1", "initialize", "enqueue", "enqueue", "configure 2", "enqueue"]
    assert life == run + ["terminate"] * (engine_name != "cpu")  # there a clone belongs to one of OpenVINO's threads
    del context, engine
    gc.collect()
    assert [call for call in CALLS if call != "clone"] == [*run, "terminate"]
    assert CALLS.count("clone") >= 1


@ptp.plugin(namespace="test.engines")
class Reluctant(Copy):
    """Its first `initialize` fails."""

    def initialize(self):
        CALLS.append("initialize")
        if CALLS.count("initialize") == 1:
            raise MemoryError("no room yet")

    def terminate(self):
        CALLS.append("terminate")


def test_a_failed_initialize_is_tried_again_before_anything_runs():
    CALLS.clear()
    with ptp.build(conv_net(Reluctant()), engine="reference").create_context() as context:
        with pytest.raises(MemoryError, match="no room yet"):
            context.run({"data": image()})
        context.run({"data": image()})
    assert CALLS == ["initialize", "initialize", "terminate"]
