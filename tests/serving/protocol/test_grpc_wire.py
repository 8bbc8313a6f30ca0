"""Messages that are taken apart and put together here are those of protobuf."""

import pytest

from pytrtplugins.serving.protocol.grpc_wire import Parts, answer_message, take_apart, within_stream
from tests.serving.protocol.asked_grpc import REQUESTS, STREAM, infer

messages = pytest.importorskip("tritonclient.grpc.service_pb2")
DecodeError = pytest.importorskip("google.protobuf.message").DecodeError

LARGE = infer("large", raw=[bytes(300), b"", b"x" * 70_000], mine="x").message
LARGE.id = "é" * 100
WHOLE = [each.message for each in REQUESTS if each.method == "ModelInfer"] + [*STREAM, LARGE]


def read(message):
    """The fields of a message and those of its parts; an error instead of a message that is none."""
    parts = take_apart(message)
    found = []
    for head in (message, parts.head):
        try:
            found.append(messages.ModelInferRequest.FromString(head))
        except DecodeError:
            found.append(DecodeError)
    whole, head = found
    if head is not DecodeError:
        head.id = parts.id or head.id
        head.raw_input_contents.extend(map(bytes, parts.raw))
    return whole, head


def test_parts_say_what_the_message_says():
    for message in WHOLE:
        data = message.SerializeToString()
        whole, found = read(data)
        assert whole == found == message
        parts = take_apart(data)
        assert (parts.id, list(map(bytes, parts.raw))) == (message.id, list(message.raw_input_contents))
        assert not messages.ModelInferRequest.FromString(parts.head).raw_input_contents


def test_tensors_are_not_copied():
    data = LARGE.SerializeToString()
    assert all(raw.obj is data for raw in take_apart(data).raw)


def test_a_message_that_is_cut_off_or_changed_is_what_protobuf_takes_it_for():
    data = infer("b", raw=[bytes(130)], mine="x").message.SerializeToString()
    for at in range(len(data)):
        whole, found = read(data[:at])
        assert whole == found
        for byte in (0, 0x1A, 0x3A, 0x3B, 0x7F, 0x80, 0xFF):
            whole, found = read(data[:at] + bytes([byte]) + data[at + 1 :])
            assert whole == found


@pytest.mark.parametrize(
    "data",
    [
        b"\x3a\x80\x80\x80\x80\x80\x01" + bytes(8),
        b"\x3a\xff\xff\xff\xff\x7f",
        b"\xba\x01\x01x",
        b"\x08\x01",
        b"\x1a\x01\xff",
        b"\x3a\x00" * 300,
        b"\x0b\x0c",
    ],
    ids=["beyond 32 bits", "beyond the end", "unknown", "a number", "an id that is no text", "too many fields", "a group"],
)  # fmt: skip
def test_what_is_unusual_is_all_head(data):
    assert take_apart(data) == Parts(data, "", [])


def test_the_last_of_several_ids_counts_as_in_protobuf():
    data = b"\x1a\x01a\x3a\x02xy\x1a\x01b"
    assert read(data)[0] == read(data)[1]
    assert take_apart(data).id == "b"


@pytest.mark.parametrize("identifier", ["", "é" * 100])
@pytest.mark.parametrize("raw", [[], [b""], [b"x" * 127, b"y" * 128, bytes(20_000)]])
def test_answers_are_protobufs(identifier, raw):
    head = messages.ModelInferResponse(model_name="double", model_version="1")
    head.outputs.add(name="y", datatype="FP32", shape=[1, 2])
    wanted = messages.ModelInferResponse(id=identifier, raw_output_contents=raw)
    wanted.MergeFrom(head)
    made = answer_message(head.SerializeToString(), identifier, raw)
    assert messages.ModelInferResponse.FromString(made) == wanted
    streamed = messages.ModelStreamInferResponse.FromString(within_stream(made))
    assert streamed == messages.ModelStreamInferResponse(infer_response=wanted)
