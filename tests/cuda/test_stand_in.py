"""What NumPy's functions may do with arrays that stand in for those of a GPU."""

import numpy as np
import pytest

from pytrtplugins.cuda import Constant
from pytrtplugins.cuda.stand_in import StandInArray, StandInStream, check_stream
from pytrtplugins.errors import PluginError


@pytest.fixture
def x():
    stream = StandInStream()
    stream.current = True
    return StandInArray(np.arange(3, dtype=np.float32), stream)


def test_numbers_and_arrays_of_the_gpu_may_be_mixed(x):
    assert np.add(x, 2, out=x) is x
    assert np.multiply(x, x, out=x).host.tolist() == [4, 9, 16]


@pytest.mark.parametrize("place", ["first", "second", "out"])
def test_an_array_of_the_host_in_any_place_is_refused(x, place):
    host = np.ones(3, np.float32)
    first, second, out = (host if each == place else x for each in ("first", "second", "out"))
    with pytest.raises(PluginError, match="copies pageable memory"):
        np.add(first, second, out=out)


def test_constants_are_copied_before_a_graph_is_captured_and_not_in_it(x):
    first, second, new = (Constant(np.zeros(2, np.float32)) for _ in range(3))
    check_stream("k", [x, first, second], x.stream)
    x.stream.capturing = True
    for known in ([first], [second], [second, first], []):
        check_stream("k", [x, *known], None)
    with pytest.raises(PluginError, match="kernel k is given a Constant that enqueue makes"):
        check_stream("k", [x, first, new], x.stream)
    with pytest.raises(PluginError, match="is not launched on the stream of enqueue"):
        check_stream("k", [x, first], StandInStream())
    check_stream("k", [np.zeros(2), new], None)
