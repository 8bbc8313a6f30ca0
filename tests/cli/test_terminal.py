"""Commands end with a message and the right code, never with a traceback, whatever their streams are."""

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import onnx
import pytest

from tests.engines.networks import conv_net

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "samples" / "models" / "yolov2-animals.cfg"
PYTRT = [sys.executable, "-c", "from pytrtplugins.cli import main; main()"]
DARKNET = [sys.executable, "-m", "darknet2caffe"]
ENDINGS = ("Traceback", "Exception ignored", "Error in sys", "lost sys.std")
ENCODINGS = {
    "C locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin-1": {"PYTHONIOENCODING": "latin-1:strict"},
}
REDIRECTIONS = {
    "stdout closed": ">&-",
    "stderr closed": "2>&-",
    "both closed": ">&- 2>&-",
    "all closed": "<&- >&- 2>&-",
    "reader gone": "| true",
    "reader of both gone": "2>&1 | true",
}
if Path("/dev/full").exists():
    REDIRECTIONS |= {"stdout full": ">/dev/full", "stderr full": "2>/dev/full", "both full": ">/dev/full 2>&1"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a network, and a name that few encodings have."""
    folder = tmp_path_factory.mktemp("café-Ж")
    onnx.save(conv_net(), folder / "nët→.onnx")
    return folder


def commands(files):
    """What is typed, and the exit code."""
    return {
        "pytrt devices": ([*PYTRT, "devices"], 0),
        "pytrt inspect": ([*PYTRT, "inspect", str(files / "nët→.onnx")], 0),
        "pytrt run": ([*PYTRT, "run", str(files / "nët→.onnx"), "--engine", "reference"], 0),
        "pytrt, no such file": ([*PYTRT, "inspect", str(files / "nicht-dä→.onnx")], 2),
        "pytrt, no such option": ([*PYTRT, "run", "--nö→"], 2),
        "darknet2caffe inspect": ([*DARKNET, "inspect", str(MODEL)], 0),
        "darknet2caffe, no such file": ([*DARKNET, "inspect", str(files / "nicht-dä→.cfg")], 2),
    }


QUICK = {"darknet2caffe inspect"}
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in commands(Path())]


def ended(command, redirection="", **environment):
    """Exit code of a command in a shell, and all that it and Python wrote."""
    line = f"{shlex.join(command)} {redirection}; exit ${{PIPESTATUS[0]}}"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        ["bash", "-c", line], capture_output=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", **environment},
    )  # fmt: skip
    return found.returncode, (found.stdout + found.stderr).decode("latin-1")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", NAMES)
def test_text_that_the_encoding_lacks_is_written_otherwise(files, name, encoding):
    command, wanted = commands(files)[name]
    code, text = ended(command, **ENCODINGS[encoding])
    assert (code, [word for word in ENDINGS if word in text]) == (wanted, []), text
    assert text


@pytest.mark.parametrize("redirection", REDIRECTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_streams_that_are_closed_or_full_end_without_a_traceback(files, name, redirection):
    command, wanted = commands(files)[name]
    code, text = ended(command, REDIRECTIONS[redirection])
    assert [word for word in ENDINGS if word in text] == [], text
    assert code in ((wanted, 2) if "full" in redirection else (wanted,))
    if redirection in ("stdout full", "both full"):
        assert code == 2


def test_a_file_that_is_written_does_not_take_the_place_of_a_stream_that_is_closed(files):
    code, _ = ended(
        [*DARKNET, str(MODEL), str(MODEL.with_suffix(".weights")), "-o", str(files / "y.onnx")], "<&- >&- 2>&-"
    )
    assert code == 0
    onnx.checker.check_model(onnx.load(files / "y.onnx"))


def test_undecodable_names_are_printed(tmp_path):
    code, text = ended([*PYTRT, "inspect", os.fsdecode(os.fsencode(tmp_path) + b"/\xff.onnx")])
    assert (code, "Traceback" in text) == (2, False)
    assert "no such file" in text


RUNNING = """
import pytrtplugins.engines.base.context as context
from pytrtplugins.cli import main
run, told = context.ExecutionContext.run, []
def tell(*given, **named):
    if not told:
        told.append(print("ready", flush=True))
    return run(*given, **named)
context.ExecutionContext.run = tell
main()
"""
ANYWHERE = "from pytrtplugins.cli import main; print('ready', flush=True); main()"


@pytest.mark.parametrize(
    ("code", "seconds"),
    [(RUNNING, 0.0), *(pytest.param(ANYWHERE, each, marks=pytest.mark.slow) for each in (0.2, 0.5, 1.0, 3.0))],
    ids=["running", "0.2 s", "0.5 s", "1 s", "3 s"],
)
def test_ctrl_c_ends_with_130_and_without_a_traceback(files, code, seconds):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    endless = ["run", str(files / "nët→.onnx"), "--engine", "reference", "--repeat", "10000000"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *endless], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path}, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        try:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(seconds)  # while it imports, builds or runs
            for _ in range(6):  # Python drops one that comes in a destructor or a callback, as imports have them
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)  # a second one while it ends would end it as SIGINT does
                    break
        finally:
            process.kill()
        text = process.stderr.read()
    words = [word for word in ENDINGS if word != "Exception ignored" or code == RUNNING]
    assert (process.returncode, [word for word in words if word in text.decode()]) == (130, []), text
