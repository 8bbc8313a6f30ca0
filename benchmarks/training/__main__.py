"""``python -m benchmarks.training loaders|steps|modes ...``: each has options of its own."""

import importlib
import sys

SUBJECTS = ("loaders", "steps", "modes")


def main() -> int:
    """Hand the arguments to the program of a subject."""
    if len(sys.argv) < 2 or sys.argv[1] not in SUBJECTS:
        print(f"usage: python -m benchmarks.training {{{','.join(SUBJECTS)}}} [--help]", file=sys.stderr)
        return 2
    subject = importlib.import_module(f"benchmarks.training.{sys.argv[1]}")
    found: int = subject.main(sys.argv[2:])
    return found


if __name__ == "__main__":
    sys.exit(main())
