"""check_plugin passes what is right, and names the one rule that a wrong plugin breaks."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import Entry, Report, models
from pytrtplugins.check.cases import Case
from pytrtplugins.engines.onnxruntime import engine
from pytrtplugins.errors import ConformanceError, DimsError, UsageError
from pytrtplugins.layers import Region, Reorg, Yolo
from pytrtplugins.tensor import DType
from tests.broken_plugins import ZOO, EnqueueDiffers, MixesTheBatch, WrongDims
from tests.engines.plugin_models import Scaled
from tests.small_process import in_small_process


@ptp.plugin(namespace="acme")
class ChannelShuffle(ptp.Plugin):
    """Interleave the channels of `groups` groups."""

    groups: int = 2

    def output_dims(self, x):
        return x

    def compute(self, x):
        n, c, h, w = x.shape
        return x.reshape(n, self.groups, c // self.groups, h, w).swapaxes(1, 2).reshape(n, c, h, w)


@in_small_process
def test_the_plugin_of_the_first_user_story_passes():
    report = ptp.check_plugin(ChannelShuffle)
    report.raise_if_failed()
    assert not report["engine cpu"].skipped, report


@pytest.mark.parametrize(
    "plugin",
    [
        Reorg,
        Region(classes=3, num=2, softmax=True, background=True),
        pytest.param(Region, marks=pytest.mark.slow),
        pytest.param(Region(classes=4, num=2, tree=(-1, -1, 0, 0)), marks=pytest.mark.slow),
        Yolo(anchors=(1, 2, 3, 4), mask=(0, 1), classes=3),
    ],
    ids=str,
)
@in_small_process
def test_the_packages_own_layers_pass(plugin):
    ptp.check_plugin(plugin).raise_if_failed()


@pytest.mark.parametrize(("broken", "entry"), ZOO, ids=[cls.__name__ for cls, _ in ZOO])
@in_small_process
def test_a_defect_is_found_by_its_own_check_alone(broken, entry):
    report = ptp.check_plugin(broken)
    assert [found.name for found in report.failed] == [entry], str(report)


@in_small_process
def test_a_failure_names_the_smallest_shape():
    assert "float32[1, 1, 1, 1]:" in ptp.check_plugin(EnqueueDiffers, engines=[])["enqueue"].detail
    assert "2, 1, 1, 1]" in ptp.check_plugin(MixesTheBatch, shapes=[(3, 6, 4, 4)], engines=[])["batch"].detail


def test_a_failing_report_raises_with_the_report():
    report = ptp.check_plugin(WrongDims, engines=[])
    with pytest.raises(ConformanceError, match="WrongDims") as caught:
        report.raise_if_failed()
    assert caught.value.report is report
    assert "FAILED" in str(caught.value)


@in_small_process
def test_checks_that_build_on_a_failed_one_are_skipped_with_the_reason():
    entry = ptp.check_plugin(WrongDims)["enqueue"]
    assert entry.skipped
    assert entry.detail == "needs 'dims', which failed"


@in_small_process
def test_the_same_seed_gives_the_same_report():
    assert ptp.check_plugin(EnqueueDiffers, seed=3, engines=[]) == ptp.check_plugin(EnqueueDiffers, seed=3, engines=[])


@in_small_process
def test_given_shapes_are_the_ones_tried():
    entry = ptp.check_plugin(Reorg(stride=3), shapes=[(2, 9, 6, 3)], engines=[])["dims"]
    assert entry.tried == "1 case, 1 set of field values: 2x9x6x3"
    assert entry.detail == ""
    assert "shapes= is empty" in ptp.check_plugin(Reorg(stride=3), shapes=[], engines=[])["dims"].detail


def test_a_given_shape_that_does_not_work_fails():
    report = ptp.check_plugin(Reorg(stride=2), shapes=[(1, 3, 2, 2)], engines=[])
    assert report.failed[0].name == "dims"
    assert "multiple of 4" in report["dims"].detail


def test_a_class_whose_fields_cannot_be_guessed_wants_an_instance():
    with pytest.raises(UsageError, match=r"Do: check_plugin\(Yolo\(anchors=..., mask=...\)\)"):
        ptp.check_plugin(Yolo)


@pytest.mark.parametrize("thing", [int, 3, ptp.Plugin])
def test_what_is_no_plugin_is_refused(thing):
    with pytest.raises(UsageError, match="@plugin"):
        ptp.check_plugin(thing)


@ptp.plugin(namespace="acme")
class SplitAndScale(ptp.Plugin):
    """Two inputs of one shape, two outputs."""

    def output_dims(self, x, y):
        if x != y:
            raise ptp.PytrtpluginsError(f"{x} and {y} differ")
        return x, (*x[:-1], 2 * x[-1])

    def compute(self, x, y):
        return x + y, np.concatenate([x, y], axis=-1)


@in_small_process
def test_several_inputs_and_outputs_pass():
    ptp.check_plugin(SplitAndScale).raise_if_failed()


@ptp.plugin(namespace="acme")
class AnyDims(ptp.Plugin):
    """Its compute takes four axes, its output_dims any."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        n, c, h, w = x.shape
        return x.reshape(n, c, h, w)


@pytest.mark.parametrize("shapes", [None, {"x": (2, 3, 4, 4)}], ids=["found", "around given ones"])
@in_small_process
def test_dims_that_output_dims_accepts_and_compute_refuses_are_a_warning(shapes):
    cls = AnyDims if shapes is None else EvenChannels
    report = ptp.check_plugin(cls, shapes=shapes, engines=[])
    assert report.ok, str(report)
    assert [entry.name for entry in report.entries if entry.state == "WARNING"] == ["dims"]
    assert report["dims"].detail.startswith("output_dims accepts [")
    assert f"Do: refuse them in {cls.__name__}.output_dims" in report["dims"].detail
    assert str(report).startswith(f"{cls.__name__}(): ok, 1 warning\n  dims  WARNING  ")


@ptp.plugin(namespace="acme")
class EvenChannels(ptp.Plugin):
    """Its compute takes an odd number of channels alone."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        if x.shape[1] % 2 == 0:
            raise ValueError("even")
        return x.copy()


@ptp.plugin(namespace="acme")
class Nothing(ptp.Plugin):
    def output_dims(self, x):
        raise ptp.PytrtpluginsError("never")

    def compute(self, x):
        return x


def test_a_plugin_that_takes_no_shape_fails_and_says_what_to_give():
    report = ptp.check_plugin(Nothing)
    assert not report.ok
    assert "never" in report["dims"].detail
    assert "Do: check_plugin(..., shapes=" in report["dims"].detail


def test_the_report_says_what_failed_then_what_is_to_be_known_then_the_rest_in_a_line():
    entries = [
        Entry("dims", True, "output_dims accepts [1], compute does not", "1 case", warning=True),
        Entry("clone", True, "", "1 case"),
        Entry("large tensors", True, "a remark", "1 case"),
    ]
    entries += [
        Entry("enqueue", False, "wrong\nDo: this", "1 of 1 case"),
        Entry("layouts", True, "needs 'enqueue', which failed", skipped=True),
    ]
    entries += [Entry("decomposition", True, "the plugin has no decompose", skipped=True)]
    assert str(Report("P()", tuple(entries))).splitlines() == [
        "P(): 1 of 6 checks failed, 1 warning",
        "  enqueue  FAILED   wrong",
        "    Do: this",
        "    tried 1 of 1 case",
        "  dims     WARNING  output_dims accepts [1], compute does not; tried 1 case",
        "  large tensors: a remark",
        "  2 passed: clone, large tensors",
        "    on 1 case",
        "  2 skipped, 1 of them since another check failed (report.table(), or --verbose, says why)",
    ]


def test_the_report_is_junit_xml_for_continuous_integration():
    entries = (
        Entry("dims", True),
        Entry("enqueue", False, "a < b\x00\nmore"),
        Entry("layouts", True, "no enqueue", skipped=True),
        Entry("batch", True, "a warning", warning=True),
    )
    suite = ElementTree.fromstring(Report("P()", entries).junit_xml())
    assert suite.attrib == {"name": "P()", "tests": "4", "failures": "1", "errors": "0", "skipped": "1"}
    assert [(case.get("classname"), case.get("name")) for case in suite] == [
        ("P()", "dims"),
        ("P()", "enqueue"),
        ("P()", "layouts"),
        ("P()", "batch"),
    ]
    assert [[(each.tag, each.get("message"), each.text) for each in case] for case in suite] == [
        [],
        [("failure", "a < b?", "a < b?\nmore")],
        [("skipped", "no enqueue", "no enqueue")],
        [("system-out", None, "a warning")],
    ]


def test_the_report_has_a_table():
    report = Report("P()", (Entry("dims", True, tried="1 case"), Entry("enqueue", False, "wrong")))
    lines = report.table().splitlines()
    assert lines == ["P(): 1 of 2 checks failed", "  dims     ok       tried 1 case", "  enqueue  FAILED   wrong"]


def test_the_table_says_once_what_several_checks_were_tried_on_or_skipped_for():
    entries = [Entry(name, True, tried="12 cases, 4 sets of field values") for name in ("dims", "dtypes")]
    entries += [Entry(name, True, "the plugin has no enqueue", skipped=True) for name in ("memory", "layouts")]
    entries.append(Entry("clone", True, "slow", tried="12 cases, 4 sets of field values"))
    assert Report("P()", tuple(entries)).table().splitlines() == [
        "P(): ok",
        "  dims     ok       tried 12 cases, 4 sets of field values",
        "  dtypes   ok       on the cases of 'dims'",
        "  memory   skipped  the plugin has no enqueue",
        "  layouts  skipped  as for 'memory'",
        "  clone    ok       slow; on the cases of 'dims'",
    ]


def test_the_table_names_one_of_the_checks_that_a_failure_blocks_and_counts_the_others():
    entries = [Entry("dims", False, "wrong")]
    entries += [
        Entry(name, True, "needs 'dims', which failed", skipped=True) for name in ("formats", "dtypes", "batch")
    ]
    assert Report("P()", tuple(entries)).table().splitlines() == [
        "P(): 1 of 4 checks failed",
        "  dims     FAILED   wrong",
        "  formats  skipped  needs 'dims', which failed; so do 2 more",
    ]


@pytest.mark.parametrize("name", ["reference", "cpu", "onnxruntime"])
def test_an_engine_is_tried_with_each_input_as_a_constant_of_the_model(name, monkeypatch):
    asked, plain = [], models.one_node_model

    def noting(case, constant=None):
        asked.append(constant)
        return plain(case, constant)

    monkeypatch.setattr(models, "one_node_model", noting)
    case = Case(Scaled(), ((2, 3), (2, 3)), (DType.FLOAT32,) * 2)
    assert models.engine(case, name) == ""
    assert asked == [None, 0, 1]


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda constants: {}, "with input 0 as a constant of the model: KeyError: 'x0'"),
        (
            lambda constants: {name: value * 0 for name, value in constants.items()},
            "with input 0 as a constant of the model: ",
        ),
    ],
)
def test_an_engine_that_loses_the_constants_of_plugins_is_caught(monkeypatch, loss, words):
    right = engine.constants_outside
    monkeypatch.setattr(engine, "constants_outside", lambda model: loss(right(model)))
    report = ptp.check_plugin(Scaled, shapes=[((2, 3), (2, 3))], engines="onnxruntime")
    (entry,) = (entry for entry in report.entries if not entry.ok)
    assert entry.name == "engine onnxruntime"
    assert words in entry.detail


@in_small_process
def test_checks_are_left_out_by_name():
    report = ptp.check_plugin(ChannelShuffle, engines=[], skip=["damaged bytes", "two threads"])
    assert report.ok
    assert {entry.name for entry in report.entries if entry.detail == "left out by the caller"} == {
        "damaged bytes",
        "two threads",
    }
    with pytest.raises(UsageError, match=r"skip: there is no check 'large'. Checks: dims, formats, "):
        ptp.check_plugin(ChannelShuffle, skip=["large"])


@ptp.plugin(namespace="acme")
class TwoRules(ptp.Plugin):
    """What one input must be follows from the other."""

    def output_dims(self, x, weight):
        if weight[0] != 3 * x[1] + 5:
            raise DimsError(f"TwoRules: weight must have {3 * x[1] + 5} rows for {x[1]} channels, found {weight[0]}")
        return x

    def compute(self, x, weight):
        return x.copy()


@in_small_process
def test_a_rule_of_two_inputs_is_told_in_its_own_words():
    (entry,) = ptp.check_plugin(TwoRules, engines=[]).entries
    assert "TwoRules: weight must have" in entry.detail
    assert 'Do: check_plugin(..., shapes={"x": (...), "weight": (...)})' in entry.detail
    assert "supports_format" not in entry.detail
    assert ptp.check_plugin(TwoRules, shapes={"x": (1, 2, 3, 3), "weight": (11, 4)}, engines=[]).ok
