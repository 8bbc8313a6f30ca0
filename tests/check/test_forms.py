"""A fault in one form and one element type of a plugin is found, whatever the form: Python's three, an exported library, C++."""

import functools
import re
import shutil
from pathlib import Path

import pytest

import pytrtplugins as ptp
from pytrtplugins.export.plugin import export_plugin
from pytrtplugins.plugin import policy
from pytrtplugins.tensor import PLUGIN_DTYPES
from tests.broken_kernels import NEEDED
from tests.check import faulty
from tests.export.conftest import builds_kept
from tests.native.conftest import built, compile_library  # noqa: F401  fixtures
from tests.small_process import in_small_process

pytestmark = NEEDED
HERE = Path(__file__).parent
DIFFERS, WRITES = "differ", "write to an input|changes its inputs"
FORMS = {
    "compute": {"a wrong order": DIFFERS, "an input is written": WRITES},
    "enqueue": {
        "a wrong order": DIFFERS,
        "the last is not written": "not written",
        "written behind the end": "out-of-bounds write",
        "read behind the end": "out-of-bounds read",
        "an input is written": WRITES,
    },
    "decomposition": {"a wrong order": DIFFERS},
    "exported": {
        "a wrong order": DIFFERS,
        "the last is not written": "not written|two runs on the same inputs differ",
        "written behind the end": f"SIGSEGV|SIGABRT|{WRITES}",  # an input may lie there
        "read behind the end": "SIGSEGV|two runs on the same inputs differ|off by more",  # whatever lies there
        "an input is written": WRITES,
    },
}
"""Form → what is planted, and what the check may call it; `compute` of a library is its `enqueue`, on memory without guards."""
FORMS["C++"] = FORMS["exported"]
OF_NO_INTEREST = ("ONNX node", "graph capture", "two threads")
CLASSES = {"compute": faulty.FaultyCompute, "enqueue": faulty.Faulty, "decomposition": faulty.FaultyDecomposition}
CASES = [(form, fault) for form, found in FORMS.items() for fault in found]


@pytest.fixture(scope="session")
def libraries(compile_library, tmp_path_factory):  # noqa: F811
    """Form → the library with the class."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler. Do: apt-get install g++")
    exported = tmp_path_factory.mktemp("faulty") / "libfaulty.so"
    with builds_kept("-O0"):
        export_plugin(faulty.Faulty, exported, host=True)
    return {"exported": exported, "C++": compile_library("faulty_cpp", HERE / "faulty.cpp")}


@functools.cache
def class_in(library):
    return ptp.load_library(library, namespace=library.stem).Faulty


def check(libraries, form, fault, of):
    library = libraries.get(form)
    plugin = (class_in(library) if library else CLASSES[form])(fault=faulty.FAULTS.index(fault), of=of)
    reference = faulty.Copy if library else None
    return ptp.check_plugin(plugin, engines=[], shapes=[(2, 3, 4)], reference=reference, skip=OF_NO_INTEREST)


def test_every_form_and_every_fault_is_planted():
    assert set(FORMS) == {*policy.FORMS, "exported", "C++"}
    assert {fault for found in FORMS.values() for fault in found} == {*faulty.FAULTS[1:]}


@pytest.mark.parametrize("form", FORMS)
@in_small_process
def test_without_a_fault_all_forms_pass_in_all_types(libraries, form):
    report = check(libraries, form, "none", -1)
    assert report.ok, str(report)


@pytest.mark.parametrize(("form", "fault"), CASES)
@pytest.mark.parametrize("dtype", PLUGIN_DTYPES, ids=str)
@in_small_process
def test_a_fault_in_one_type_is_found_there_and_named(libraries, form, fault, dtype):
    report = check(libraries, form, fault, PLUGIN_DTYPES.index(dtype))
    later = form in ("exported", "C++") and fault == "written behind the end"  # it ends the process some time
    named = (f"on {dtype}[", f"{dtype} -> {dtype}")
    details = [each.detail for each in report.failed if later or any(words in each.detail for words in named)]
    assert any(re.search(FORMS[form][fault], detail) for detail in details), str(report)
