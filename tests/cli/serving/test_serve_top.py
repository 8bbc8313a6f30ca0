"""The command ``pytrt serve-top``, beside a server that answers what a test says."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytrtplugins.cli.serving import serve_top
from pytrtplugins.serving.server_load import ModelLoad
from tests.loopback import Server

ROOT = Path(__file__).parents[3]
PYTRT = [sys.executable, "-c", "from pytrtplugins.cli import main; main()", "serve-top"]
METRICS = b"""\
# TYPE pytrt_ready gauge
pytrt_ready{model="animals",version="1"} 1
pytrt_ready{model="[bold]",version="1"} 0
# TYPE pytrt_queue_length gauge
pytrt_queue_length{model="animals",version="1"} 7
# TYPE pytrt_processes gauge
pytrt_processes{role="cpu"} 2
pytrt_processes{role="engine"} 1
# TYPE pytrt_process_restarts counter
pytrt_process_restarts_total{role="cpu"} 0
pytrt_process_restarts_total{role="engine"} 3
# TYPE pytrt_gpu_utilization_ratio gauge
pytrt_gpu_utilization_ratio{gpu="0",name="NVIDIA H200"} 0.5
# TYPE pytrt_gpu_memory_used_bytes gauge
pytrt_gpu_memory_used_bytes{gpu="0",name="NVIDIA H200"} 3221225472
# TYPE pytrt_gpu_memory_total_bytes gauge
pytrt_gpu_memory_total_bytes{gpu="0",name="NVIDIA H200"} 151397597184
"""

pytest.importorskip("prometheus_client", reason='pip install "pytrtplugins[serve]"')


@pytest.fixture
def server():
    with Server({"/metrics": METRICS}) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_one_table_has_a_row_for_each_model(pytrt, server):
    code, out, _ = pytrt("serve-top", server.url, "--once", "--interval", "0.1")
    assert code == 0
    assert "processes: 2 cpu, 1 engine; started again: 3 engine; GPU 0 NVIDIA H200: 50%, 3.0 of 141.0 GiB" in " ".join(
        out.split()
    )
    (row,) = (line.split() for line in out.splitlines() if "animals" in line)
    assert row == ["animals", "0.0", "0.0", "–", "7", "0", "–", "–", "–", "–", "–", "–"]
    assert "[bold] (not ready)" in out
    assert server.seen == ["/metrics", "/metrics"]


def test_each_column_has_its_own_figure():
    load = ModelLoad(
        "animals", "1", True, 1234.5, 2.25, 4.0, queue=5, in_flight=6, p50_ms=7.5, p99_ms=9.125, waiting=0.25,
        computing=0.625, preprocess_ms=2.5, postprocess_ms=3.75,
    )  # fmt: skip
    expected = {
        "model": "animals", "requests/s": "1,234.5", "errors/s": "2.2", "batch": "4.0", "queue": "5", "in flight": "6",
        "p50 ms": "7.50", "p99 ms": "9.12", "waiting": "25%", "computing": "62%", "preprocess ms": "2.50",
        "postprocess ms": "3.75",
    }  # fmt: skip
    assert dict(zip(serve_top._COLUMNS, serve_top._model_cells("animals", load), strict=True)) == expected


def test_as_json_it_has_the_same_figures(pytrt, server):
    code, out, _ = pytrt("serve-top", server.url.removeprefix("http://"), "--interval", "0.1", "--json")
    found = json.loads(out)["result"]
    assert (code, found["url"], found["restarts"]) == (0, server.url, {"cpu": 0, "engine": 3})
    assert [(each["name"], each["queue"], each["p99_ms"]) for each in found["models"]] == [
        ("animals", 7, None),
        ("[bold]", 0, None),
    ]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://here", "expected an address"),
        ("http://", "expected an address"),
        ("http://a:99999", "expected an address"),
        ("http://a b", "expected an address"),
        ("{url}/nothing", "404"),
        ("{url}/other", "not the metrics of pytrt serve"),
        ("http://127.0.0.1:9", "no server answers"),
    ],
)
def test_what_is_no_server_is_one_line_and_the_next_command(pytrt, server, url, said):
    server.files["/other/metrics"] = b"# TYPE up gauge\nup 1\n"
    code, _, err = pytrt("serve-top", url.format(url=server.url), "--once", "--interval", "0.1")
    assert code == 2
    assert said in err
    assert "Do: " in err


@pytest.mark.parametrize(("size", "code"), [(1 << 20, 0), ((1 << 20) + 1, 2)])
def test_metrics_have_16_mib_at_most(pytrt, server, monkeypatch, size, code):
    """At a limit of 1 MiB, which takes less time to read."""
    assert serve_top._MOST_BYTES == 16 << 20
    monkeypatch.setattr(serve_top, "_MOST_BYTES", 1 << 20)
    server.files["/metrics"] = METRICS + b"# " + (size - len(METRICS) - 3) * b"x" + b"\n"
    found, _, err = pytrt("serve-top", server.url, "--once", "--interval", "0.1")
    assert (found, "more than 1 MiB" in err) == (code, bool(code))


def test_a_key_goes_with_the_request(pytrt, server, monkeypatch):
    monkeypatch.setenv("PYTRT_API_KEY", "pytrt_secret")
    assert serve_top._headers() == {"Authorization": "Bearer pytrt_secret"}
    monkeypatch.setenv("PYTRT_API_KEY", "a\nb")
    code, _, err = pytrt("serve-top", server.url, "--once")
    assert (code, "PYTRT_API_KEY: expected the key" in err, server.seen) == (2, True, [])


def test_through_a_pipe_tables_follow_each_other_until_the_reader_is_gone(server):
    words = [*PYTRT, server.url, "--interval", "0.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        tables = 0
        while tables < 2:
            tables += b"animals" in process.stdout.readline()
        process.stdout.close()
        assert (process.wait(20), process.stderr.read()) == (0, b"")


@pytest.mark.parametrize("end", ["xQ", "hang-up", pytest.param("Ctrl-C", marks=pytest.mark.slow)])
def test_in_a_terminal_it_is_renewed_until_a_key_ends_it_or_the_terminal_is_gone(server, end):
    ours, theirs = pty.openpty()
    words = [*PYTRT, server.url, "--interval", "0.1"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment) as process:
        os.close(theirs)
        seen = b""
        while seen.count(b"animals") < 2:
            seen += os.read(ours, 1 << 16)
        server.files["/metrics"] = b"a {"  # for a while
        while b"these are no metrics" not in seen:
            seen += os.read(ours, 1 << 16)
        server.files["/metrics"] = METRICS
        if end == "hang-up":
            asked = len(server.seen)
            os.close(ours)
            assert process.wait(20) == 0
            assert len(server.seen) <= asked + 1
            return
        if end == "xQ":
            os.write(ours, b"xQ")  # two keys at once
        else:
            process.send_signal(signal.SIGINT)
        until = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < until:
            try:
                seen += os.read(ours, 1 << 16)
            except OSError:  # closed
                break
        assert process.wait(20) == 0
    os.close(ours)
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1  # the screen is as it was


@pytest.mark.parametrize("words", [["--once"], ["--json"], []])
@pytest.mark.parametrize("reading", [1, 2])
def test_ctrl_c_ends_it_without_words_at_each_of_its_waits(pytrt, server, monkeypatch, words, reading):
    """While it waits for the next reading, and while the server does not answer."""
    waits, read = [], serve_top._read

    def interrupted(*given):
        waits.append(given)
        if len(waits) == 2 * reading - 1:
            raise KeyboardInterrupt
        return read(*given) if given[0] == server.url else None

    monkeypatch.setattr(serve_top, "_read", interrupted)
    monkeypatch.setattr(serve_top, "time", SimpleNamespace(sleep=interrupted, monotonic=time.monotonic))
    code, out, err = pytrt("serve-top", server.url, *words)
    assert (code, out, err) == (130, "", "")
    assert [each[0] for each in waits] == [server.url, 2.0, server.url][: 2 * reading - 1]
