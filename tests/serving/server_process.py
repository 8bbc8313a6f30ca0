"""A server in processes of its own."""

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVE = """
import json, sys
from pytrtplugins.serving import Access, Limits, ModelSpec, serve
given = json.loads(sys.argv[1])
specs = [ModelSpec(**spec) for spec in given.pop("specs")]
for name, kind in {"access": Access, "limits": Limits}.items():
    if name in given:
        given[name] = kind(**given[name])
print(json.dumps(serve(specs, port=0, **given)))
"""


class ServerProcess:
    """A server's first process, the line that it printed, and the address in it."""

    def __init__(self, process):
        self.process, self.line = process, process.stdout.readline()
        assert " at http://" in self.line, "the server did not start: its reason is in the captured standard error"
        self.address = self.line.split(" at ")[1].split(",")[0]

    def children(self):
        """Numbers of its processes, by their role."""
        roles = defaultdict(list)
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for pid in map(int, (task / "children").read_text().split()):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if len(words) > 3 and words[3].startswith(b"{"):
                    roles[json.loads(words[3])["role"]].append(pid)
        return roles

    def stop(self):
        """End it as SIGTERM does; gives its counts by model and version."""
        self.process.send_signal(signal.SIGTERM)
        counts = json.loads(self.process.communicate(timeout=60)[0])
        assert self.process.returncode == 0
        return counts


def command(specs, **options):
    return [sys.executable, "-c", SERVE, json.dumps({"specs": [vars(spec) for spec in specs], **options})]


@contextmanager
def server_process(specs, **options):
    """Serve models, with the options of `pytrtplugins.serving.serve`; limits and access are their fields."""
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}  # the line comes at once all the same
    with subprocess.Popen(
        command(specs, **options), stdout=subprocess.PIPE, cwd=ROOT, text=True, env=environment
    ) as process:
        try:
            yield ServerProcess(process)
        finally:
            process.kill()
