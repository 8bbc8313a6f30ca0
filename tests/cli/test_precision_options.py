"""Every option of a search for layers that lose accuracy reaches what it is for, which is a stub."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrtplugins.cli.shared import loading
from pytrtplugins.precision import Budget, parse_tolerance
from tests.cli.stubs import ends


class Network:
    """What a search needs of a network."""

    model, settings, outputs = "prepared", {"a": 1}, ()

    def reference(self):
        return SimpleNamespace(inputs="inputs")


@pytest.mark.parametrize("labelled", [False, True])
def test_precision_search(pytrt, asked, monkeypatch, labelled):
    network, module = Network(), asked.precision
    asked(loading, "open_model", "model")
    made = asked(module.precision, "Network", network)
    read, tables = asked(module, "read_samples", "samples"), asked(module, "make_tables", {"entropy": "table"})
    judge, data = asked(module, "_judge", "judge"), asked(module.models, "YoloData", "labelled")
    asked(module, "_train", "train.txt")
    searched = asked(module.precision, "search")
    tolerance = "map50=0.125" if labelled else "cosine=0.5"
    ends(pytrt, "precision", "search", "net.cfg", "--data", "d", "-o", "p.yaml", "--precision", "int8", "--tolerance", tolerance,
         "--engine", "reference", "--weights", "w", "--names", "n", "--threads", "3", "--split", "test.txt", "--evaluation-size", "11",
         "--samples", "6", "--seed", "7", "--fit", "stretch", "--algorithm", "entropy", "--calibration-size", "13", "--per-tensor",
         "--max-latency-ratio", "1.5", "--max-runs", "17", "--latency", "measured", "--setting", "a=1",
         "--plugin-form", "acme::Scale=compute", "--exif", "stored")  # fmt: skip
    forms = {"acme::Scale": "compute"}
    assert made == [
        (("model", "reference"), {"threads": 3, "settings": {"a": 1}, "plugins": forms, "fast_build": False})
    ]
    common = {"seed": 7, "mode": "stretch", "split": "train.txt"}
    assert read == [(([Path("d")], "inputs"), {"limit": limit, **common}) for limit in (6, 13)]
    order = ["entropy", "minmax", "percentile"]
    assert tables == [(("prepared", "samples", order), {"engine": "reference", "threads": 3, "plugins": forms})]
    assert data == ([(([Path("d")],), {"exif": "stored"})] if labelled else [])
    wanted = (network, "labelled", "test.txt", parse_tolerance(tolerance), Path("n"), "stretch", 11)
    assert judge == ([(wanted, {})] if labelled else [])
    ((given, options),) = searched
    assert given == (network, "samples", parse_tolerance(tolerance), "int8")
    del options["advance"]
    assert options == {
        "tables": {"entropy": "table"},
        "per_tensor": True,
        "judge": "judge" if labelled else None,
        "budget": Budget(17, 1.5),
        "latency": "measured",
        "journal": Path("p.journal"),
        "identity": {
            "data": ["d"],
            "calibration": 13,
            "settings": {"a": 1},
            "exif": "stored",
            "seed": 7,
            "mode": "stretch",
        },
    }


def test_what_a_judge_measures(asked):
    """Lost mAP50 in units of what may be lost, of the images and by the names that were given."""
    figures = iter([0.75, 0.5, 0.875])
    module, detector = asked.precision, SimpleNamespace(names=())

    class Detector:
        def __init__(self, *given, **options):
            detectors.append((given, options))

        def __enter__(self):
            return detector

        def __exit__(self, *error):
            pass

    detectors, evaluated = list[Any](), []

    def evaluate(*given, **options):
        evaluated.append((given, options))
        return SimpleNamespace(map50=next(figures))

    monkeypatched = {"Yolov2": Detector, "evaluate": evaluate}
    with pytest.MonkeyPatch.context() as patch:
        for name, stub in monkeypatched.items():
            patch.setattr(module.models, name, stub)
        reference = SimpleNamespace(reference=lambda: "float32")
        tolerance = parse_tolerance("map50=0.125")
        judge = module._judge(reference, "labelled", "test.txt", tolerance, Path("n"), "stretch", 11)
        assert [judge("worse"), judge("better")] == [2, 0]
    assert detectors == [((engine, Path("n")), {"mode": "stretch"}) for engine in ("float32", "worse", "better")]
    wanted = ((detector, "labelled", "test.txt"), {"limit": 11, "progress": False})
    assert evaluated == [wanted] * 3
