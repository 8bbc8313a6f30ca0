"""Install other servers, each into an environment of its own: ``python -m benchmarks.serving.peers FOLDER``."""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from . import PEERS, Peer


def main() -> int:
    """Install what is missing; gives the number of those that could not be installed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.peers", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the environments are made")
    parser.add_argument("names", nargs="*", help="of environments; default: all")
    given = parser.parse_args()
    failed = 0
    for peer in PEERS:
        if peer.version(given.folder) or (given.names and peer.folder not in given.names):
            continue
        print(f"{peer.name} ...", flush=True)
        failed += not _installed(peer, given.folder / peer.folder)
    return failed


def _installed(peer: Peer, home: Path) -> bool:
    venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *peer.packages], check=False).returncode
    if peer.without_dependencies:
        done = done or subprocess.run([*pip, "--no-deps", *peer.without_dependencies], check=False).returncode
    return not done


if __name__ == "__main__":
    sys.exit(main())
