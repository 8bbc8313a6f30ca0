"""Files of a form: one, several, and none."""

import threading
import time

import pytest

from pytrtplugins.serving import ModelSpec
from tests.serving.conftest import Client
from tests.serving.served import Double

HEADERS = {"Content-Type": "multipart/form-data; boundary=b"}
ASK = "/v1/models/double:predict"


class Counted(Double):
    """Counts how many requests are preprocessed and wait at a time."""

    name, lock, now, most = "double", threading.Lock(), 0, 0

    def preprocess(self, request):
        with self.lock:
            Counted.now += 1
            Counted.most = max(Counted.now, Counted.most)
        return super().preprocess(request)

    def postprocess(self, outputs, request):
        with self.lock:
            Counted.now -= 1
        return super().postprocess(outputs, request)


class Sluggish(Double):
    """Takes longer for a request than others take to arrive."""

    def predict(self, batch):
        time.sleep(0.005)
        return super().predict(batch)


@pytest.fixture(scope="module")
def client():
    narrow = ModelSpec("narrow", f"{__name__}:Sluggish", queue=1, max_batch=1)
    with Client([ModelSpec("double", f"{__name__}:Counted"), narrow]) as made:
        yield made


def form(*contents):
    head = '--b\r\nContent-Disposition: form-data; name="image"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n'
    return b"".join(head.encode() + content + b"\r\n" for content in contents) + b"--b--\r\n"


FIFTY = form(*(f"{number} 0".encode() for number in range(50)))
DOUBLED = [[[2.0 * number, 0.0]] for number in range(50)]


def test_the_answer_to_a_form_with_one_file_is_that_to_the_file(client):
    answer = client.post(ASK, form(b"1 2"), headers=HEADERS)
    assert answer.json == client.post(ASK, b"1 2").json
    assert answer.json["rows"] == [[2.0, 4.0]]


def test_several_files_are_answered_in_their_order_a_few_at_a_time(client):
    Counted.most = 0
    answer = client.post(ASK, FIFTY, headers=HEADERS)
    assert [each["rows"] for each in answer.json] == DOUBLED
    assert 1 < Counted.most <= 16
    assert "upload;dur=" in answer.headers["server-timing"]


def test_files_of_a_form_for_which_the_queue_has_no_room_beside_each_other_are_asked_again(client):
    answer = client.post("/v1/models/narrow:predict", FIFTY, headers=HEADERS)
    assert [each["rows"] for each in answer.json] == DOUBLED
    assert client.backend.services["narrow"].statistics.total()["refused"]


def test_a_file_that_fails_has_its_error_in_the_place_of_its_answer(client):
    answer = client.post(ASK, form(b"1 2", b"teapot", b"-1 0", b"3 4"), headers=HEADERS)
    assert answer.status == 200
    assert [each.get("rows") for each in answer.json] == [[[2.0, 4.0]], None, None, [[6.0, 8.0]]]
    assert answer.json[1] == {"error": "no coffee", "status": 418}
    assert answer.json[2]["status"] == 500


def test_where_all_files_fail_the_first_error_is_the_answer(client):
    answer = client.post(ASK, form(b"teapot", b"-1 0"), headers=HEADERS)
    assert (answer.status, answer.json["error"]) == (418, "no coffee")


def test_several_answers_that_are_not_json_are_refused(client):
    assert client.post(f"{ASK}?as=bytes", form(b"1 2"), headers=HEADERS).headers["content-type"] == "application/x-rows"
    answer = client.post(f"{ASK}?as=bytes", form(b"1 2", b"3 4"), headers=HEADERS)
    assert answer.status == 400
    assert "one file at a time" in answer.json["error"]


NO_FILE = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--b--\r\n'


@pytest.mark.parametrize("body", [b"--b--\r\n", NO_FILE, b"junk", form(*65 * [b"1 2"])])
def test_a_form_without_a_file_or_with_too_many_is_refused(client, body):
    answer = client.post(ASK, body, headers=HEADERS)
    assert answer.status == 400
    assert "form" in answer.json["error"]
