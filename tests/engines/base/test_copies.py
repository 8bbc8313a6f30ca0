"""What holds a library's state says so when it is pickled or copied; what does not, is."""

import copy
import pickle

import pytest

import pytrtplugins as ptp
from pytrtplugins import errors
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.errors import CopyError
from pytrtplugins.layers import Reorg
from pytrtplugins.vision import Head
from tests.engines.networks import Affine, conv_net, image
from tests.models.test_stream import detector

WAYS = {"pickle": pickle.dumps, "copy": copy.copy, "deepcopy": copy.deepcopy}


@pytest.fixture(params=sorted(WAYS))
def way(request):
    return WAYS[request.param]


def test_an_engine_says_that_it_is_saved_and_loaded(engine_name, way):
    engine = ptp.build(conv_net(Affine()), engine=engine_name)
    with pytest.raises(CopyError, match=r"Engine: it cannot be pickled[\s\S]*Do: engine.save[\s\S]*load_engine"):
        way(engine)
    assert engine.create_context().run({"data": image()})["y"].shape == (1, 4, 8, 8)


def test_a_context_says_that_another_is_made(engine_name, way):
    engine = ptp.build(conv_net(channels=14), engine=engine_name)
    with engine.create_context() as context, pytest.raises(CopyError, match=r"Do: [^\n]*engine.create_context\(\)"):
        way(context)
    head = Head("y", "region", (1.0, 1.0, 3.0, 2.0), 2)
    with (
        engine.create_detection_context([head], (8, 8)) as detection,
        pytest.raises(CopyError, match="create_detection_context"),
    ):
        way(detection)


def test_a_detector_says_that_another_is_made(way):
    with pytest.raises(CopyError, match="Yolov2: it cannot be pickled"):
        way(detector())


def test_it_is_the_error_that_python_raises_for_what_cannot_be_pickled(engine_name):
    with pytest.raises(TypeError):
        pickle.dumps({"engine": ptp.build(conv_net(), engine=engine_name)})


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_what_holds_values_only_is_copied(again):
    assert again(Reorg(stride=3)) == Reorg(stride=3)
    assert again(errors.CfgError("bad", path="a.cfg", line=7)).line == 7
    desc = ptp.build(conv_net(batch="N"), engine="null").inputs[0]
    assert again(desc) == desc
    calibrator = MinMaxCalibrator([{"data": image()}])
    tables = [ptp.engines.calibrate(conv_net(), each) for each in (again(calibrator), calibrator)]
    assert [str(table) for table in tables] == [str(tables[0])] * 2
    assert dict(tables[0]) == dict(tables[1])
