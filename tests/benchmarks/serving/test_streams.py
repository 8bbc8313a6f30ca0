"""Photos on streams: all are answered and counted, on as many connections as were asked for."""

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from benchmarks.serving.streams import _shares, stream

grpc = pytest.importorskip("grpc")
messages = pytest.importorskip("tritonclient.grpc.service_pb2")

MODEL = "photos"


class Answering:
    """Answers photos of streams, and counts them by the client's address."""

    def __init__(self, wrong=b""):
        self.by_peer, self.wrong = defaultdict(int), wrong
        self.lock = threading.Lock()

    def answer(self, requests, context):
        for request in requests:
            assert request.model_name == MODEL
            with self.lock:
                self.by_peer[context.peer()] += 1
            error = "no" if self.wrong and self.wrong in request.raw_input_contents[0] else ""
            yield messages.ModelStreamInferResponse(error_message=error)

    @contextmanager
    def served(self):
        """The port."""
        read, write = messages.ModelInferRequest.FromString, messages.ModelStreamInferResponse.SerializeToString
        handler = grpc.stream_stream_rpc_method_handler(self.answer, read, write)
        server = grpc.server(ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelStreamInfer": handler}),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait(10)


@pytest.mark.parametrize("connections", [1, 3])
def test_each_stream_has_a_connection_of_its_own(connections):
    there = Answering()
    with there.served() as port:
        found = stream(port, [b"a", b"b"], 0.2, 6, MODEL, connections)
    assert len(there.by_peer) == connections
    assert found.sent == len(found.latencies_s) == sum(there.by_peer.values())
    assert min(there.by_peer.values()) > 2
    assert (found.lost, found.wrong) == (0, {})
    assert found.cpu_s > 0
    assert found.seconds >= 0.2


def test_answers_that_say_an_error_are_wrong_and_not_among_the_latencies():
    there = Answering(wrong=b"bad")
    with there.served() as port:
        found = stream(port, [b"good", b"bad"], 0.1, 2, MODEL, 2)
    assert found.wrong[500] > 0
    assert len(found.latencies_s) + found.wrong[500] == found.sent
    assert found.lost == 0


@pytest.mark.parametrize(
    ("ahead", "connections", "shares"), [(64, 1, [64]), (64, 4, 4 * [16]), (8, 3, [3, 3, 2]), (2, 4, 4 * [1])]
)
def test_connections_share_the_photos_on_their_way_and_have_one_at_least(ahead, connections, shares):
    assert _shares(ahead, connections) == shares


def test_what_has_no_answer_is_lost():
    found = stream(1, [b"a"], 0.1, 2, MODEL)  # nobody listens
    assert found.lost == found.sent > 0
    assert len(found.latencies_s) == 0
