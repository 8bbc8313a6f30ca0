"""Inputs that fit the declared free dims, but not the network: each engine raises, with any number of threads."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import EngineError
from tests.engines.operators import literal
from tests.engines.run_dims import CASES, case_of, names_part

RUNS = [("cpu", 1), ("cpu", 2), ("cpu", 4), ("onnxruntime", 1), ("reference", 1)]
# engine `cpu` runs all networks in test_guarded_runs.py, by turns in two contexts too
PAIRS = [(name, engine_name) for name in CASES for engine_name in ("onnxruntime", "reference")]


@pytest.mark.parametrize("name", CASES)
def test_onnxruntime_refuses_what_contradicts(name):
    model, fitting, contradicting = case_of(name)
    literal(model, fitting)
    with pytest.raises(Exception, match="Non-zero status code"):
        literal(model, contradicting)


@pytest.mark.parametrize(("name", "engine_name"), PAIRS)
def test_an_input_that_contradicts_the_network_is_an_error(name, engine_name):
    model, fitting, contradicting = case_of(name)
    engine = ptp.build(model, engine=engine_name, threads=1)
    wanted = literal(model, fitting)
    with engine.create_context() as one, engine.create_context() as other:
        one.run(fitting)  # whose dims are those of the last good run
        for context in (one, other):  # which share what is compiled
            with pytest.raises(EngineError) as raised:
                context.run(contradicting)
            assert names_part(raised.value, model), raised.value
        for context in (one, other):
            for output, value in zip(model.graph.output, wanted, strict=True):
                np.testing.assert_allclose(context.run(fitting)[output.name], value, rtol=1e-5, atol=1e-5)


STREAMS = [
    (name, engine_name, threads, (1, 3)[(number // 2 + place) % 2], ("inputs", "prepared")[(number + place) % 2])
    for number, name in enumerate([*CASES][::12])
    for place, (engine_name, threads) in enumerate(RUNS)
]
"""Each network on each engine; each engine with one slot and with several, where inputs are prepared and where not."""


@pytest.mark.parametrize(("name", "engine_name", "threads", "slots", "way"), STREAMS)
def test_a_stream_gives_what_fits_and_raises_at_the_turn_of_what_does_not(name, engine_name, threads, slots, way):
    prepare = dict if way == "prepared" else None
    model, fitting, contradicting = case_of(name)
    engine = ptp.build(model, engine=engine_name, threads=threads)
    wanted = literal(model, fitting)
    stream = engine.stream([fitting, contradicting, fitting], slots=slots, prepare=prepare)
    outputs = next(stream)
    for output, value in zip(model.graph.output, wanted, strict=True):
        np.testing.assert_allclose(outputs[output.name], value, rtol=1e-5, atol=1e-5)
    with pytest.raises(EngineError):
        next(stream)
