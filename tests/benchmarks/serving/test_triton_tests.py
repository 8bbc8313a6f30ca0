"""The command that runs Triton's tests of clients, on a checkout with two of our own."""

import pytest

from benchmarks.pages.accuracy import triton_tests as tables
from benchmarks.serving import triton_tests
from benchmarks.serving.triton_tests import FAILED, NOT_RUN, PASSED, Group

pytest.importorskip("uvicorn")
pytest.importorskip("grpc")

TESTS = """
import unittest, urllib.request

class Server(unittest.TestCase):
    def test_lives(self):
        with urllib.request.urlopen("http://localhost:8000/v2/models/simple") as answer:
            self.assertEqual(answer.status, 200)

    def test_fails(self):
        self.assertEqual(1, 2)

    def test_is_large(self):
        raise MemoryError
"""


def test_tests_run_against_a_server_of_their_own_and_reasons_stand_in_the_table(tmp_path, monkeypatch):
    for folder in ("common", "L0_some"):
        (tmp_path / folder).mkdir()
    (tmp_path / "L0_some" / "some_test.py").write_text(TESTS)
    group = Group("some", "L0_some/some_test.py", {"simple": "Simple"}, skipped={"test_is_large": "it is large"})
    outcomes = {name: outcome for name, (outcome, _) in triton_tests.run(group, tmp_path)}
    assert outcomes == {"test_lives": PASSED, "test_fails": FAILED, "test_is_large": NOT_RUN}
    assert (tmp_path / "L0_some" / "some_test.py").read_text() == TESTS
    monkeypatch.setattr(triton_tests, "GROUPS", (group,))
    monkeypatch.setattr(triton_tests, "REASONS", {"test_fails": "1 is not 2"})
    lines = "\n".join(tables("some", triton_tests.report({"some": outcomes}))).splitlines()
    assert lines[2] == "| some | 1 | 3 |"
    assert lines[-2:] == ["| test_fails | 1 is not 2 |", "| test_is_large | not run: it is large |"]
