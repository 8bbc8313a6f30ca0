"""The same requests to a real Triton server and to ours: their answers, byte for byte, and their codes."""

import http.client
import json
import os
from pathlib import Path

import numpy as np
import pytest

from pytrtplugins.serving import Limits, ModelSpec
from tests.real_triton import copy_backends, free_port, needed, running_triton, site_packages
from tests.serving.protocol import asked, twins
from tests.serving.running import running

pytestmark = [pytest.mark.slow, needed]

DIFFERENT = {
    "a wrong request is the client's error (400), not the server's (500, 501)": [
        *(each.name for each in asked.NO_REQUESTS),
        "no such object",
        "a region beyond its object",
        "less room than the output needs",
        "a log file",
    ],
    "what is unknown is 404 everywhere": [
        "/v2/models/double/versions/9/ready",
        "/v2/models/nothing/ready",
        "/v2/models/nothing/stats",
        "/v2/models/nothing/trace/setting",
        "load an unknown model",
        "unload an unknown model",
    ],
    "a model that is not ready says 503": ["whether an unloaded model is ready"],
    "lists must have the same length": ["lists of different lengths"],
    "a body without JSON may have many rows": ["two rows alone"],
    "half precision may be said in JSON": ["half precision in JSON"],
    "no model here has a state": ["a sequence"],
    "HTTP has a code for it (415)": ["an unknown compression"],
    "numbers beyond the type, and outputs that are there twice, are refused": ["beyond float32", "an output twice"],
}
"""Requests that get another code here, and why."""
DIFFERENT_OVER_GRPC = {
    "bytes that belong to no input, and outputs that are there twice, are refused": [
        "bytes of two inputs",
        "an input in memory and as bytes",
        "an output twice",
    ],
    "no model here has a state": ["a sequence"],
    "what is unknown is NOT_FOUND everywhere": [
        "a version that is no number",
        "statistics of an unknown model",
        "trace of an unknown model",
        "load an unknown model",
        "unload an unknown model",
    ],
    "a wrong request is the client's error (INVALID_ARGUMENT)": [
        "no such object",
        "less room than the output needs",
    ],
    "as over REST, a classification of none is none": ["the largest none"],
}
"""The same over gRPC."""
OTHER_WORDS = {
    "the input has a name here": ["too few bytes alone"],
    "no body is not the tensor": ["no body", "length is text", "a body that is not gzip"],
    "another fault of the request is told first": ["an input is a number", "an input too many", "a list", "no rows"],
    "Triton's sentence does not fit": ["a region beyond its object", "an input of no size", "an unknown type"],
    "what a model raises comes with its place": ["a model that fails"],
    "Python's reader of JSON says it": [
        *(each.name for each in asked.NO_REQUESTS if "no JSON" in each.name),
        "length within the JSON",
        "something behind the JSON",
    ],
    "the value is told": ["a number among strings", "a number too large for its type", "memory of no GPU"],
    "it is about the protocol's parameters": ["parameters are a number", "a log file"],
    "what is unknown is told in one way": [
        "a version that is no number",
        "strings with a rest",
        *(path for path in asked.GOT if path.endswith(("/ready", "/stats", "/trace/setting", "/versions/x"))),
    ],
}
"""Requests whose error does not begin with Triton's words, and why."""


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    """Triton's, with HTTP and gRPC, and ours."""
    folder = tmp_path_factory.mktemp("triton")
    for name, config in twins.CONFIGS.items():
        (folder / "models" / name / "1").mkdir(parents=True)
        (folder / "models" / name / "config.pbtxt").write_text(f'backend: "python"\n{config}')
        source = twins.SOURCE.format(packages=str(site_packages()), name=name)
        (folder / "models" / name / "1" / "model.py").write_text(source)
    (folder / "models" / "double" / "labels.txt").write_text("left\nright\n")
    grpc_port = free_port()
    options = [
        f"--model-repository={folder / 'models'}",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc_port}",
    ]
    specs = [ModelSpec(name, f"tests.serving.protocol.twins:{name.title()}") for name in twins.CONFIGS]
    with (
        running_triton(options, copy_backends(folder), folder / "log") as port,
        running(specs, Limits(shared_memory_regions=8), grpc=True) as server,
    ):
        yield (port, grpc_port), (server.port, server.grpc_port)


def answer(port, request):
    """Code, length of the JSON, body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(request.method, request.path, request.body, request.headers)
        found = connection.getresponse()
        return found.status, found.getheader("Inference-Header-Content-Length"), found.read()
    finally:
        connection.close()


def compared(ports, requests, before=lambda: None):
    """Of each request Triton's answer and ours."""
    for request in requests:
        answers = []
        for port, _ in ports:
            before()
            answers.append(answer(port, request))
        yield request, *answers


def begins_alike(theirs, ours):
    """Whether an error of ours begins with the sentence of Triton's."""
    sentence = theirs.removeprefix("[request id: <id_unknown>] ").partition(" NOTE:")[0].rstrip(". ")
    return ours.startswith(sentence)


def check(ports, requests, before=lambda: None):
    """Require the same codes, but for `DIFFERENT`, the same bytes of answers, and errors as clients read them."""
    known = {name for names in DIFFERENT.values() for name in names}
    other_words = {name for names in OTHER_WORDS.values() for name in names}
    wrong = []
    for request, theirs, ours in compared(ports, requests, before):
        if request.path.endswith(("/ready", "/live")):
            ours = (*ours[:2], b"")  # what KServe's client reads there
        if (theirs[0] != ours[0]) != (request.name in known) or (ours[0] == theirs[0] == 200 and ours != theirs):
            wrong.append((request.name, theirs, ours))
        elif ours[0] >= 400 and ours[2]:
            error = json.loads(ours[2])["error"]
            if theirs[0] >= 400 and request.name not in other_words:
                assert begins_alike(json.loads(theirs[2])["error"], error), request.name
    assert not wrong


def test_requests_to_infer_get_the_same_answers_to_the_byte(ports):
    check(ports, asked.REQUESTS)


def test_what_is_no_request_is_refused_by_both(ports):
    check(ports, asked.NO_REQUESTS)


def test_metadata_and_health_are_the_same(ports):
    check(ports, [asked.Asked(path, "GET", path) for path in asked.GOT])


def test_shared_memory_is_the_same(ports):
    path = Path("/dev/shm") / f"pytrt-test-{os.getpid()}"

    def fill():
        path.touch()
        path.write_bytes(np.float32([1, 2, *([0] * 14)]).tobytes())

    try:
        check(ports, asked.in_memory(path.name), fill)
    finally:
        path.unlink()


def answers_over_grpc(ports, method, message):
    """Triton's answer and ours: the code, and the message as text."""
    grpc = pytest.importorskip("grpc", reason="pip install grpcio")
    stubs = pytest.importorskip("tritonclient.grpc.service_pb2_grpc")
    found = []
    for _, port in ports:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            called = getattr(stubs.GRPCInferenceServiceStub(channel), method)
            try:
                if method == "ModelStreamInfer":
                    found.append([(bool(each.error_message), each) for each in called(iter(message), timeout=20)])
                else:
                    found.append(("OK", str(called(message, timeout=20))))
            except grpc.RpcError as error:
                found.append((error.code().name, ""))
    return found


def test_answers_over_grpc_are_the_same(ports):
    asked_grpc = pytest.importorskip("tests.serving.protocol.asked_grpc")
    path, wrong = Path("/dev/shm") / f"pytrt-test-{os.getpid()}", []
    known = {name for names in DIFFERENT_OVER_GRPC.values() for name in names}
    path.write_bytes(np.float32([1, 2, *([0] * 14)]).tobytes())
    try:
        for request in [*asked_grpc.REQUESTS, *asked_grpc.in_memory(path.name)]:
            theirs, ours = answers_over_grpc(ports, request.method, request.message)
            if (theirs != ours) != (request.name in known):
                wrong.append((request.name, theirs, ours))
    finally:
        path.unlink()
    assert not wrong


def test_streams_go_on_after_errors_as_tritons_do(ports):
    asked_grpc = pytest.importorskip("tests.serving.protocol.asked_grpc")
    theirs, ours = answers_over_grpc(ports, "ModelStreamInfer", asked_grpc.STREAM)
    assert [failed for failed, _ in ours] == [failed for failed, _ in theirs] == [False, True, True, False, False]
    for (failed, one), (_, other) in zip(ours, theirs, strict=True):
        assert one.infer_response.id == other.infer_response.id
        if not failed:
            assert str(one) == str(other)


def test_statistics_and_configurations_have_fields_that_triton_has(ports):
    for path in ("/v2/models/double/stats", "/v2/models/double/config", "/v2/logging", "/v2"):
        theirs, ours = (json.loads(answer(port, asked.Asked(path, "GET", path))[2]) for port, _ in ports)
        if "model_stats" in ours:
            (theirs,), (ours,) = theirs["model_stats"], ours["model_stats"]
            assert ours["inference_stats"].keys() == theirs["inference_stats"].keys()
        assert ours.keys() - {"model_transaction_policy"} <= theirs.keys(), (
            path
        )  # Triton leaves that out where it says no
    config = json.loads(answer(ports[1][0], asked.Asked("", "GET", "/v2/models/shout/config"))[2])
    assert [each["data_type"] for each in config["input"] + config["output"]] == ["TYPE_STRING"] * 2 + ["TYPE_INT64"]
