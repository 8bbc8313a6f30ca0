"""What a library gives is compared with what the model says, on each engine: another size or type is an error."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.base.context import ExecutionContext
from pytrtplugins.errors import ExecutionError
from tests.engines.model_parts import parsed
from tests.engines.networks import run as run_once


class Answering(ExecutionContext):
    def _run(self, inputs):
        return self.answer.pop(0)


def context(text):
    return Answering(ptp.build(parsed(text, 18, 9), engine="onnxruntime"))


RELU = "(float[N,3] x) => (float[] y) { y = Relu (x) }"
PLACES = "(float[N,3] x) => (int64[2,N] y) { y = NonZero (x) }"


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (2, 4), (1, 3), (2,), (2, 3, 1)])
def test_an_output_of_other_dims_is_an_error_that_names_it(shape):
    with context(RELU) as run:
        run.answer = [{"y": np.zeros(shape, np.float32)}]
        words = r"engine 'onnxruntime': output 'y' is float32.*expected.*\(2, 3\)"
        with pytest.raises(ExecutionError, match=words) as caught:
            run.run({"x": np.ones((2, 3), np.float32)})
        assert "Do: " in str(caught.value)
        assert caught.value.facts["found"] == shape


def test_an_output_of_another_type_is_an_error():
    with context(RELU) as run:
        run.answer = [{"y": np.zeros((2, 3))}]
        with pytest.raises(ExecutionError, match=r"'y' is float64 .*; expected float32"):
            run.run({"x": np.ones((2, 3), np.float32)})


def test_what_fitted_before_is_compared_again_where_inputs_or_outputs_differ():
    with context(RELU) as run:
        for size, answered in [(2, 2), (2, 3), (2, 2), (3, 2), (3, 3)]:
            run.answer = [{"y": np.zeros((answered, 3), np.float32)}]
            if size == answered:
                run.run({"x": np.ones((size, 3), np.float32)})
            else:
                with pytest.raises(ExecutionError, match="expected"):
                    run.run({"x": np.ones((size, 3), np.float32)})


def test_arrays_in_another_order_are_compared_too():
    with context(RELU) as run:
        run.answer = [{"y": np.zeros((2, 3), np.float32)}, {"y": np.zeros((3, 3), np.float32)}]
        run.run({"x": np.asfortranarray(np.ones((2, 3), np.float32))})
        with pytest.raises(ExecutionError):
            run.run({"x": np.asfortranarray(np.ones((2, 3), np.float32))})


def test_a_name_that_the_file_alone_gives_holds_nobody():
    """As where a user of PyTorch's exporter calls the first axis of a detector's boxes "batch"."""
    with context(PLACES) as run:
        run.answer = [{"y": np.zeros((2, 5), np.int64)}, {"y": np.zeros((3, 5), np.int64)}]
        assert run.run({"x": np.ones((4, 3), np.float32)})["y"].shape == (2, 5)
        with pytest.raises(ExecutionError, match=r"expected int64 of \(2, 4\)"):
            run.run({"x": np.ones((4, 3), np.float32)})


def test_an_output_whose_number_of_axes_is_not_known_may_have_any():
    model = parsed("(float[N] x, int64[rank] s) => (float[] y) { y = Reshape (x, s) }", 18, 9)
    with ptp.build(model, engine="onnxruntime").create_context() as run:
        for dims in ([2, 3], [6], [1, 6, 1]):
            assert run.run({"x": np.ones(6, np.float32), "s": np.array(dims)})["y"].shape == tuple(dims)


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_sizes_of_inputs_and_counts_may_be_0(engine):
    model = parsed("(float[2,K] x) => (float[] y, int64[] z) { y = Relu (x) z = NonZero (x) }", 18, 9)
    built = ptp.build(model, engine=engine)
    for size in (3, 0):
        found = run_once(built, {"x": np.zeros((2, size), np.float32)})
        assert (found["y"].shape, found["z"].shape) == ((2, size), (2, 0))
