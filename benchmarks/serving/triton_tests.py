"""Run Triton's own tests of clients against this project's server, and write the table of docs/how-to/serving_protocol.md.

The tests are in the folders ``qa/L0_...`` of a checkout of https://github.com/triton-inference-server/server, which is not changed: they
are copied, and the ports in them replaced. They need requests, psutil and tritonclient[all]. Tests that fail have a reason below; the exit
code is 1 if another one fails, or one with a reason passes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..pages.accuracy import triton_tests
from ..pages.machine import about
from ..pages.results import publish
from .load import Exchange
from .servers import ROOT, Server, end_servers_on_sigterm, free_port, own

_LIVE = Exchange(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", None)
_SECONDS = 900  # of one run of tests
_SHARED = ("--shared-memory",)
PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


@dataclass(frozen=True)
class Group:
    """Tests that share a server.

    Attributes:
        title: In the table.
        path: Of the tests, in the checkout.
        models: Name → class in `triton_models`.
        options: Of the server.
        only: Pattern of names of tests, with their class.
        client: Kind of client, for tests that run with either.
        alone: Whether each test needs a server that nobody has used.
        skipped: Tests that are not run, and why.
    """

    title: str
    path: str
    models: Mapping[str, str]
    options: Sequence[str] = ()
    only: str = ""
    client: str = "http"
    alone: bool = False
    skipped: Mapping[str, str] = field(default_factory=dict)

    def takes(self, test: str) -> bool:
        """Whether a test is of this group."""
        return re.search(self.only, test) is not None


_IDENTITIES = {
    "onnx_zero_1_float32": "Float",
    "onnx_zero_1_float16": "Half",
    "onnx_zero_3_float32": "ThreeFloats",
    "onnx_zero_1_object": "Strings",
    "onnx_zero_1_object_1_element": "OneString",
    "onnx_zero_1_float32_queue": "SlowFloat",
    "simple_identity": "Strings",
    "simple_identity_int64": "Whole",
}
_SIMPLE = {"simple": "Simple"}
_OTHERS = {f"simple_{number}": "Simple" for number in range(7)}
_ADDED = {
    **{f"{name}_int32_int32_int32": "Simple" for name in ("python", "onnx", "plan", "openvino")},
    "libtorch_int32_int32_int32": "Underlined",
}
_CHECKED = {
    "input_all_required": "ThreeInputs",
    "pt_identity": "EightFloats",
    "onnx_object_int32_int32": "TwoStrings",
    "plan_nobatch_zero_1_float32_int32": "ShapeTensor",
    "plan_zero_1_float32_int32": "ShapeTensorOfBatch",
}
_HTTP, _GRPC = "L0_http", "L0_grpc"
_MEMORY = "L0_shared_memory/shared_memory_test.py"
_UNREGISTER, _DISABLED = "TestSharedMemoryUnregister", "test_client_shm_disabled_by_default"
_LIMIT = f"{_HTTP}/http_input_size_limit_test.py"
GROUPS = (
    Group(
        "HTTP",
        f"{_HTTP}/http_test.py",
        _IDENTITIES,
        ("--queue", "1"),
        skipped={
            "test_loading_large_invalid_model": "the client takes 10 GB of memory for its request, of which the server reads the head"
        },
    ),
    Group("HTTP, asyncio", f"{_HTTP}/python_http_aio_test.py", _SIMPLE | dict([*_OTHERS.items()][:6]), _SHARED),
    Group("gRPC, asyncio", f"{_GRPC}/python_grpc_aio_test.py", _SIMPLE | _OTHERS, _SHARED),
    *(
        group
        for client in ("http", "grpc")
        for group in (
            Group(
                f"shared memory, {client}",
                _MEMORY,
                _SIMPLE | _ADDED,
                _SHARED,
                rf"SharedMemoryTest\.(?!{_DISABLED})",
                client,
                alone=True,
            ),
            Group(f"shared memory, {client}", _MEMORY, _SIMPLE, (), _DISABLED, client),
            Group(
                f"shared memory, {client}",
                _MEMORY,
                {"simple": "SlowSimple"},
                _SHARED,
                rf"{_UNREGISTER}\..*_{client}",
                client,
                alone=True,
            ),
        )
    ),
    Group("size of a request", _LIMIT, _IDENTITIES, (), r"\.test_(?!large_input)"),
    Group("size of a request", _LIMIT, _IDENTITIES, ("--body-limit", "128"), r"\.test_large_input"),
    Group("checks of inputs", "L0_input_validation/input_validation_test.py", _CHECKED, _SHARED),
    *(
        Group(
            f"classification, {client}",
            "L0_parameters/class_count_test.py",
            {"identity_fp32": "Float", "identity_bytes": "Strings"},
            client=client,
        )
        for client in ("http", "grpc")
    ),
)
_CLIENTS_FAULT = (
    "it expects 500 (gRPC: INTERNAL) for a wrong request; here that is the client's error: 400, INVALID_ARGUMENT. "
    "The words are Triton's"
)
_TOO_LARGE = (
    "a body that is too large is 413, as RFC 9110 says, not 400; the error names this server's option, `--body-limit`"
)
_LOADS = "it expects a server that refuses to load models; this one loads them again unless a [key](serving_operations.md) forbids it"
_OPTIONAL = "models here have no optional inputs"
REASONS = {
    "test_content_encoding_chunked_manually": "the request has both Transfer-Encoding and Content-Length, which RFC 9112 allows to refuse: "
    "where it ends is a matter of opinion, and another request can be hidden behind it",
    "test_descriptive_status_code": "it expects that one request already fills a queue of one; here an idle model computes it at once",
    "test_load_oversized_file_parameter": "it loads a model from files in the request, and expects 500; "
    "this server takes no files from clients: 400",
    "test_negative_dimensions": _CLIENTS_FAULT,
    "test_repository_index_deeply_nested_json": "JSON that is nested more than 100 times is refused as a whole, "
    "before its parts are looked at",
    "test_get_server_metadata": "the server's name is `pytrtplugins`, not `triton`",
    "test_load_model": _LOADS,
    "test_unload_model": _LOADS,
    "test_register_system_shared_memory": _CLIENTS_FAULT,
    **dict.fromkeys(
        (
            "test_default_limit_compressed",
            "test_default_limit_json",
            "test_default_limit_raw_binary",
            "test_large_string_in_json",
            "test_large_input_compressed",
            "test_large_input_json",
            "test_large_input_raw_binary",
        ),
        _TOO_LARGE,
    ),
    "test_json_dtype_size_expansion_exceeds_limit_error": "this server has no extension `generate`",
    "test_input_string_shape_validation": "two inputs are wrong; Triton names the second of them, this server the first, in the same words",
    "test_input_validation_all_optional": _OPTIONAL,
    "test_input_validation_optional": _OPTIONAL,
    "test_input_validation_optional_empty": _OPTIONAL,
}
"""Test → why it fails."""


def main() -> int:
    """Run; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.triton_tests", description=__doc__)
    add = parser.add_argument
    add("checkout", type=Path, metavar="FOLDER", help="of Triton's repository, which has the folder qa")
    add("-k", metavar="WORDS", default="", help="only groups whose title has this")
    add("--docs", type=Path, metavar="FOLDER", help="write the table into serving_protocol.md there")
    add("--verbose", action="store_true", help="show what pytest prints")
    arguments = parser.parse_args()
    end_servers_on_sigterm()
    if not (arguments.checkout / "qa" / "common").is_dir():
        parser.error(f"{arguments.checkout} has no folder qa/common")
    results: dict[str, dict[str, str]] = {}
    for group in GROUPS:
        if arguments.k in group.title:
            for name, (outcome, text) in run(group, arguments.checkout / "qa", arguments.verbose):
                results.setdefault(group.title, {})[name] = outcome
                print(f"{group.title}: {name}: {outcome}{f': {text}' * bool(text)}", flush=True)
    record = {"subject": "triton tests", **about(["pytrtplugins", "tritonclient"]), **report(results)}
    print("\n\n".join(triton_tests("triton-tests", record)))
    if arguments.docs:
        publish(record, "serving_protocol", "triton-tests", arguments.docs)
    failed = {name for outcomes in results.values() for name, outcome in outcomes.items() if outcome == FAILED}
    passed = {name for outcomes in results.values() for name, outcome in outcomes.items() if outcome == PASSED} - failed
    wrong = sorted((failed - set(REASONS)) | (passed & set(REASONS)))
    if wrong:
        print(f"otherwise than the reasons say: {', '.join(wrong)}", file=sys.stderr)
    return int(bool(wrong))


def run(group: Group, qa: Path, verbose: bool = False) -> Iterator[tuple[str, tuple[str, str]]]:
    """Run the tests of a group; gives the outcome of each, and what it said."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("common", Path(group.path).parent):
            shutil.copytree(qa / part, folder / part, ignore=_all_but_python)
        file = folder / group.path
        source = file.read_text()
        listed = json.loads(_runner(file, [], {}, verbose)[-1])
        tests = [test for test in listed if group.takes(test.partition(".")[2])]
        for selected in [[test] for test in tests] if group.alone else [tests]:
            kept = [test for test in selected if test.rpartition(".")[2] not in group.skipped]
            yield from _run(group, file, source, kept, verbose)
        for test, reason in group.skipped.items():
            yield test, (NOT_RUN, reason)


def _all_but_python(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".py")]


def _runner(file: Path, tests: Sequence[str], environment: Mapping[str, str], verbose: bool) -> list[str]:
    """The lines that the tests of a file print; the list of them, where none is named."""
    path = os.pathsep.join([str(ROOT), str(file.parents[1] / "common")])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.serving.triton_runner", file.stem, *tests],
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=None if verbose else subprocess.PIPE,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{file.name} cannot be run:\n{done.stderr or ''}")
    return done.stdout.splitlines()


def _run(
    group: Group, file: Path, source: str, tests: Sequence[str], verbose: bool
) -> Iterator[tuple[str, tuple[str, str]]]:
    grpc_port = free_port()
    models = [f"{name}=benchmarks.serving.triton_models:{cls}" for name, cls in group.models.items()]
    command = own(group.title, models, "--local", "--grpc-port", grpc_port, *group.options)
    with Server(command, _LIVE) as server:
        for old, new in (("8000", server.port), ("8001", grpc_port)):
            source = source.replace(f"localhost:{old}", f"127.0.0.1:{new}")
        file.write_text(source)
        environment = {"CLIENT_TYPE": group.client, "SERVER_PID": str(server.process.pid)}
        lines = _runner(file, tests, environment, verbose)
    for line in lines:
        if line.startswith('{"test": '):
            result = json.loads(line)
            problem = result["problem"]
            yield result["test"].rpartition(".")[2], (PASSED if problem is None else FAILED, problem or "")


def report(results: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """How many tests of each group pass, and why others fail: a record without the machine."""
    groups = [
        {"title": title, "passed": list(outcomes.values()).count(PASSED), "tests": len(outcomes)}
        for title, outcomes in results.items()
    ]
    reasons = REASONS | {test: f"not run: {why}" for group in GROUPS for test, why in group.skipped.items()}
    failed = dict.fromkeys(
        name for outcomes in results.values() for name, outcome in outcomes.items() if outcome != PASSED
    )
    failures = [{"test": name, "reason": reasons.get(name, "no reason is known")} for name in failed]
    return {"groups": groups, "failures": failures}


if __name__ == "__main__":
    sys.exit(main())
