"""Which engine process has which models, and on which device."""

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import ModelSpec
from pytrtplugins.serving.processes.placement import Place, place
from pytrtplugins.serving.run import serve
from tests.serving.conftest import spec
from tests.serving.rig import Rig, infer, x


def models(**options):
    return [ModelSpec(name, "x.engine", **each) for name, each in options.items()]


@pytest.mark.parametrize(
    ("specs", "engines", "devices", "places"),
    [
        (models(a={}), None, [], [(None, "0")]),
        (models(a={}, b={}), 3, [], [(None, "01")] * 3),
        (models(a={}), None, ["cuda:0", "cuda:1"], [("cuda:0", "0"), ("cuda:1", "0")]),
        (models(a={}), 3, ["cuda:0", "cuda:1"], [("cuda:0", "0"), ("cuda:1", "0"), ("cuda:0", "0")]),
        (models(a={"devices": (1,)}, b={"devices": ("0", "1")}), None, [], [("cuda:1", "01"), ("cuda:0", "1")]),
        (models(a={"devices": (1,)}, b={}), 2, ["cuda:0", "cuda:1"], [("cuda:0", "1"), ("cuda:1", "01")]),
        (models(a={"replicas": 1}, b={"replicas": 1}, c={}), 3, [], [(None, "02"), (None, "12"), (None, "2")]),
        (models(a={"replicas": 2, "devices": ("1",)}), 4, ["cuda:0", "cuda:1"], [("cuda:0", ""), ("cuda:1", "0")] * 2),
    ],
)
def test_processes_are_spread_over_devices_and_models_over_processes(specs, engines, devices, places):
    assert place(specs, engines, devices) == [Place(device, tuple(map(int, numbers))) for device, numbers in places]


@pytest.mark.parametrize(
    ("specs", "engines", "devices", "said"),
    [
        (models(a={}), 1, ["cuda:0", "cuda:1"], "2 devices need as many engine processes, found 1.\nDo: --gpu 2"),
        (models(a={"devices": (2,)}), None, ["cuda:0"], "no engine process has device cuda:2; they have cuda:0"),
        (models(a={"replicas": 3}), 2, [], "3 replicas need as many engine processes, and 2 can have it.\nDo: --gpu 3"),
    ],
)
def test_what_has_no_place_is_refused(specs, engines, devices, said):
    with pytest.raises(UsageError) as caught:
        place(specs, engines, devices)
    assert said in str(caught.value)


def test_one_process_computes_on_one_device():
    with pytest.raises(UsageError, match="one process computes on one device"):
        serve([ModelSpec("a", "x.engine")], devices=["0", "1"], cpu=0, port=0)


def test_each_process_loads_its_models_on_its_device_and_requests_go_where_their_model_is():
    specs = [spec("double", "Double"), spec("other", "Double"), spec("both", "Double")]
    with Rig(specs) as rig:
        rig.engine(Place("cuda:0", (0, 2)))
        rig.engine(Place("cuda:1", (1, 2)))
        devices = [each.signature.facts["device"] for each in rig.backend.services.every]
        assert devices[:2] == ["cuda:0", "cuda:1"]
        assert [sorted(link.ready) for link in rig.backend._links] == [[0, 2], [1, 2]]
        for name in ("double", "other", "both"):
            assert rig.do(infer(rig, x(4), name)).outputs["y"][0, 0] == 8
        rig.do(rig.backend.load("other"))
        rig.do(rig.backend.unload("double"))
        assert [each.ready for each in rig.backend.services.every] == [False, True, True]
        assert [sorted(link.ready) for link in rig.backend._links] == [[2], [1, 2]]
