"""CPU, memory and files of processes."""

import os
import subprocess
import sys

from benchmarks.serving.processes import cpu_s, descriptors, pss_bytes, tree


def test_a_process_and_its_children_are_found_with_what_they_take():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        while len(found := tree(process.pid)) < 2:
            pass
        assert found[0] == process.pid
        assert all(pss_bytes(pid) > 0 for pid in found)
        process.communicate(b"\n")
    assert pss_bytes(process.pid) == cpu_s(process.pid) == descriptors(process.pid) == 0
    assert cpu_s(os.getpid()) > 0
