"""Traces: the spans of a request, the caller's trace, and where they are sent."""

import http.server
import threading

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Access, Limits
from pytrtplugins.serving.access.exchange import Exchange
from pytrtplugins.serving.access.gate import Gate
from pytrtplugins.serving.access.trace import Tracer, trace_url
from tests.serving.conftest import INFER, JSON, Client, spec
from tests.serving.running import running, triton_row

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="pip install opentelemetry-sdk")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

TRACE, SPAN = 32 * "a", 16 * "b"
CALLER = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


@pytest.fixture(scope="module")
def traced():
    """A client whose requests are traced, and their spans."""
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    tracer = Tracer(provider)
    with Client([spec("double", "Double")]) as made:
        made.app = Gate(None, [tracer]).before(made.app)

        def ask(*words, **options):
            exporter.clear()
            answer = made.ask(*words, **options)
            return answer, exporter.get_finished_spans()

        yield ask
        tracer.close()


def test_a_request_and_each_of_its_stages_is_a_span(traced):
    answer, spans = traced("POST", "/v1/models/double:predict", b"1 2")
    assert answer.status == 200
    assert [each.name for each in spans[:-1]] == ["preprocess", "queue", "compute", "postprocess"]
    request = spans[-1]
    assert (request.name, request.kind.name) == ("POST /v1/models/double:predict", "SERVER")
    for each in spans[:-1]:
        assert each.parent.span_id == request.context.span_id
        assert request.start_time <= each.start_time <= each.end_time <= request.end_time
    starts = [each.start_time for each in spans[:-1]]
    assert starts == sorted(starts)
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["pytrt.request_id"] == answer.headers["x-request-id"]
    assert request.attributes["pytrt.model"] == "double"


def test_tensors_have_no_preprocessing(traced):
    _, spans = traced("POST", INFER, JSON)
    assert [each.name for each in spans] == ["queue", "compute", f"POST {INFER}"]


def test_a_request_joins_the_trace_of_its_caller(traced):
    _, spans = traced("POST", INFER, JSON, headers=CALLER)
    assert {f"{each.context.trace_id:032x}" for each in spans} == {TRACE}
    assert f"{spans[-1].parent.span_id:016x}" == SPAN


@pytest.mark.parametrize("given", ["00-zz-1-01", f"00-{TRACE}-{16 * '0'}-01", 2000 * "a", ""])
def test_what_is_no_trace_begins_a_new_one(traced, given):
    _, spans = traced("POST", INFER, JSON, headers={"traceparent": given})
    assert spans[-1].parent is None


def test_a_caller_that_is_not_sampled_leaves_no_spans(traced):
    answer, spans = traced("POST", INFER, JSON, headers={"traceparent": f"00-{TRACE}-{SPAN}-00"})
    assert (answer.status, spans) == (200, ())


def test_failures_of_the_server_are_errors_and_those_of_clients_are_not(traced):
    for path, body, status, failed in (
        ("/v1/models/double:predict", b"words", 500, True),
        (INFER, b"junk", 400, False),
        ("/nothing", b"", 404, False),
    ):
        _, spans = traced("POST", path, body)
        assert spans[-1].attributes["http.response.status_code"] == status
        assert (spans[-1].status.status_code.name == "ERROR") is failed
    assert spans[-1].name == "POST"  # clients make no names


def test_the_number_of_the_trace_is_for_the_log():
    tracer = Tracer(sdk.TracerProvider())
    exchange = Exchange("http", "GET", "/", CALLER, "test")
    tracer.record(exchange)
    tracer.close()
    assert exchange.trace == TRACE


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (None, None),
        ("http://a:4318", "http://a:4318/v1/traces"),
        ("https://a/", "https://a/v1/traces"),
        ("http://a/own/path", "http://a/own/path"),
    ],
)
def test_an_endpoint_without_a_path_gets_that_of_otlp(endpoint, url):
    assert trace_url(endpoint) == url


@pytest.mark.parametrize("endpoint", ["localhost:4318", "grpc://a:4317", "http://", ""])
def test_what_is_no_url_is_refused(endpoint):
    with pytest.raises(UsageError, match="--trace-endpoint: expected a URL"):
        Tracer.of(Access(trace_endpoint=endpoint))


def test_the_environment_turns_traces_on_and_off(monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    assert Tracer.of(Access()) is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    found = Tracer.of(Access())
    assert found is not None
    found.close()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert Tracer.of(Access()) is None


def test_a_server_sends_the_spans_of_both_protocols_to_its_collector():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    pytest.importorskip("grpc", reason="pip install grpcio")
    library = pytest.importorskip("tritonclient.grpc")
    messages = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    bodies = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever, args=(0.01,))
        thread.start()
        access = Access(trace_endpoint=f"http://127.0.0.1:{collector.server_port}")
        with running([spec("double", "Double")], Limits(), access, grpc=True) as server:
            server.sent(b"GET /v2/models/double HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            with library.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
                tensor = triton_row(library)
                client.infer("double", [tensor], headers=CALLER)
        collector.shutdown()
        thread.join(20)
    assert {path for path, _ in bodies} == {"/v1/traces"}
    resources = [
        each for _, body in bodies for each in messages.ExportTraceServiceRequest.FromString(body).resource_spans
    ]
    service = {each.key: each.value.string_value for each in resources[0].resource.attributes}["service.name"]
    spans = [span for each in resources for scope in each.scope_spans for span in scope.spans]
    assert service == "pytrtplugins"
    assert [each.name for each in spans] == [
        "GET /v2/models/double",
        "queue",
        "compute",
        "inference.GRPCInferenceService/ModelInfer",
    ]
    assert spans[-1].trace_id.hex() == TRACE
