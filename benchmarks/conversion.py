"""Time and memory of a conversion, as a user starts it: the whole process, from darknet's files to the file written.

python -m benchmarks.conversion                  print the table
python -m benchmarks.conversion --docs docs      print it, keep the results, and write docs/lab/benchmarks.md
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from darknet2caffe import Network, read_network
from tests.darknet2caffe.networks import CFGS
from tests.darknet2caffe.table import compare
from tests.oracles.libdarknet import LibDarknet

from .pages.cpu import conversion
from .pages.machine import about
from .pages.results import publish

ROUNDS = 5
CONVERT = [sys.executable, "-m", "darknet2caffe", "a.cfg", "a.weights"]
READ = "import cv2; cv2.dnn.readNetFromDarknet('a.cfg', 'a.weights')"
COMMANDS = {
    "darknet2caffe -o a.onnx": [*CONVERT, "-o", "a.onnx"],
    "darknet2caffe -o a.onnx --inline": [*CONVERT, "-o", "a.onnx", "--inline"],
    "darknet2caffe -o a.onnx --external-data": [*CONVERT, "-o", "a.onnx", "--external-data"],
    "darknet2caffe --caffe a": [*CONVERT, "--caffe", "a"],
    "OpenCV's importer, which only reads": [sys.executable, "-c", READ],
}


LAUNCH = """
import os, subprocess, sys, time
begin = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(time.perf_counter() - begin, usage.ru_maxrss * 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Seconds, and the largest resident memory in bytes (mapped files count), of one process.

    A small process starts it: Linux counts the memory of whoever starts a process as its own at first.
    """
    done = subprocess.run([sys.executable, "-c", LAUNCH, *command], cwd=folder, stdout=subprocess.PIPE, check=True)
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


def measure(network: Network) -> dict[str, Any]:
    """The figures of every command; the converted network is compared with darknet first."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        heads, _, _ = compare(LibDarknet(), network, folder)
        error = max(heads.values())
        if error > 1e-4:
            raise RuntimeError(f"the converted network computes something else: relative error {error:.1e}")
        size = (folder / "a.weights").stat().st_size
        rounds = [{label: run(command, folder) for label, command in COMMANDS.items()} for _ in range(ROUNDS)]
    note = (
        f"{network.name}.weights, random, {size / 1e6:.0f} MB; error of the converted network's head {error:.1e}. "
        f"{ROUNDS} rounds, commands in turn."
    )
    rows = []
    for label in COMMANDS:
        seconds, memory = [each[label][0] for each in rounds], max(each[label][1] for each in rounds)
        times = {"median_s": statistics.median(seconds), "min_s": min(seconds)}
        rows.append({"command": label, **times, "bytes": memory, "over_weights": memory / size})
    return {"subject": "conversion", **about(("onnx", "numpy"), note=note), "rows": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, help="folder of benchmarks.md")
    parser.add_argument("--cfg", type=Path, default=CFGS / "yolov2.cfg", help="network (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    record = measure(read_network(chosen.cfg).with_random_weights(0))
    print("\n\n".join(conversion("conversion", record)))
    if chosen.docs:
        publish(record, "benchmarks", "conversion", chosen.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
