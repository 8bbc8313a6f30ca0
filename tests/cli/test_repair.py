"""`pytrt repair` says what it found, writes only with -o, and ends as a check does."""

import json

import onnx
import pytest

from tests.mxnet.files import face
from tests.passes.repairs.exports import exported, old_export


@pytest.fixture
def broken(tmp_path):
    onnx.save(old_export(face()), tmp_path / "broken.onnx")
    return "broken.onnx"


def test_without_a_target_nothing_is_written_and_faults_end_with_1(pytrt, broken, tmp_path):
    before = (tmp_path / broken).read_bytes()
    code, out, err = pytrt("repair", broken)
    assert (code, err) == (1, "")
    assert out.startswith(
        "broken.onnx: 7 faults, 34 leftovers\n\nweight-inputs (31 leftovers): IR 3 lists every weight"
    )
    assert (
        "  conv_1_relu: the slope 'conv_1_relu_gamma' (8) beside dims (1, 8, 8, 8) -> it is reshaped to (8, 1, 1)"
        in out
    )
    assert "  and 21 more, which --json lists\n" in out
    assert out.endswith("\nDo: pytrt repair broken.onnx -o OUT.onnx\n")
    assert [path.name for path in tmp_path.iterdir()] == [broken]
    assert (tmp_path / broken).read_bytes() == before


def test_with_a_target_the_model_is_written(pytrt, broken):
    code, out, err = pytrt("repair", broken, "-o", "fixed.onnx")
    assert (code, err) == (0, "")
    assert out.endswith("\nfixed.onnx: written\nDo: pytrt inspect fixed.onnx\n")
    code, out, _ = pytrt("repair", "fixed.onnx")
    assert (code, out) == (0, "fixed.onnx: 0 faults, 0 leftovers\n")


def test_leftovers_alone_are_no_fault(printed, broken):
    out = printed("repair", broken, "--only", "leftovers")
    assert out.endswith("\nDo: pytrt repair broken.onnx --only leftovers -o OUT.onnx\n")


def test_json_lists_all_findings(pytrt, broken):
    code, out, _ = pytrt("repair", broken, "--json", "--skip", "weight-inputs,leftovers", "--skip", "label-inputs")
    found = json.loads(out)
    assert (code, found["ok"], found["result"]["file"]) == (1, False, None)
    assert found["result"]["faults"] == len([each for each in found["result"]["findings"] if each["fault"]])
    assert {each["repair"] for each in found["result"]["findings"]} == {"batchnorm-spatial"}


def test_errors_alone_are_printed_when_asked(pytrt, broken):
    code, out, err = pytrt("repair", broken, "-q")
    assert (code, out, err) == (1, "", "broken.onnx: 7 faults\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--only", "labels"], "there is no repair 'labels'.\nRepairs: weight-inputs"),
        (["-o", "none/fixed.onnx"], "the folder does not exist.\nDo: mkdir -p"),
    ],
)
def test_wrong_words_get_an_error(refused, broken, words, text):
    assert text in refused("repair", broken, *words)


def test_a_file_that_is_no_model_gets_an_error(refused, tmp_path):
    (tmp_path / "x.onnx").write_bytes(b"\xff\xff")
    assert "x.onnx: not an ONNX model" in refused("repair", "x.onnx")


def test_changes_that_were_asked_for_are_counted_apart(printed, broken):
    out = printed("repair", broken, "--also", "free-batch", "-o", "free.onnx")
    assert out.startswith("broken.onnx: 7 faults, 34 leftovers, 1 change\n")
    assert "\nfree-batch (1 change): " in out
    out = printed("inspect", "free.onnx", "--json")
    assert json.loads(out)["result"]["tensors"][0]["dims"] == ["N", 3, 16, 16]


def test_a_batch_that_cannot_be_freed_is_an_error(pytrt, tmp_path):
    onnx.save(exported([("ReduceSum", ["data"], "y", {"keepdims": 0})], {}, [1, 2], "y", opset=11), tmp_path / "x.onnx")
    code, _, err = pytrt("repair", "x.onnx", "--also", "free-batch", "-o", "free.onnx")
    assert (code, (tmp_path / "free.onnx").exists()) == (2, False)
    assert "the batch cannot be freed: the first dim of the output 'y' does not follow" in err
