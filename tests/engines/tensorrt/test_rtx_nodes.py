"""TensorRT for RTX builds tests that ONNX ships for its operators, or refuses them with a reason; none ends its process."""

import os
from collections import Counter
from functools import cache

from benchmarks.node_tests import PASSED, REFUSED, load_cases, run_cases
from benchmarks.tensorrt_builds.build import build
from benchmarks.tensorrt_builds.reasons import BUILDER, PACKAGE, PARSER, refused_by
from benchmarks.tensorrt_builds.subjects import node_subject

from .rtx_builds import needs_rtx

pytestmark = needs_rtx
EVERY = 13
"""One of so many tests is built; `python -m benchmarks.tensorrt_builds --nodes` builds all."""
LEAST_BUILT = 0.4


def build_quietly(subject):
    """Build in a child process, whose libraries print nothing."""
    with open(os.devnull, "w") as sink:
        for descriptor in (1, 2):
            os.dup2(sink.fileno(), descriptor)
    return build(subject)


@cache
def outcomes():
    subjects = [node_subject(case) for case in load_cases()[::EVERY]]
    return [(subject, outcome) for subject, outcome in run_cases(subjects, build_quietly, start="forkserver")]


def test_each_is_built_or_refused():
    assert len(outcomes()) > 140
    others = {subject.name: outcome for subject, outcome in outcomes() if outcome.kind not in (PASSED, REFUSED)}
    assert others == {}


def test_what_is_refused_has_a_reason_with_the_node_or_the_tensor():
    for subject, outcome in outcomes():
        if outcome.kind == REFUSED and refused_by(outcome.reason) in (PARSER, PACKAGE):
            assert "node " in outcome.reason or "tensor '" in outcome.reason, (subject.name, outcome.reason)


def test_no_warning_while_a_model_is_built_is_ours():
    assert {
        subject.name: outcome.values.warnings
        for subject, outcome in outcomes()
        if outcome.kind == PASSED and outcome.values.warnings
    } == {}


def test_most_refusals_are_the_parsers():
    counts = Counter(
        refused_by(outcome.reason) if outcome.kind == REFUSED else outcome.kind for _, outcome in outcomes()
    )
    assert counts[PASSED] > LEAST_BUILT * len(outcomes())
    assert counts[PARSER] > counts[BUILDER]
