"""The command line of a training program: options, early checks, and the start of its ranks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytrtplugins.errors import PytrtpluginsError, UsageError
from pytrtplugins.utils.numbers import FloatRange, IntRange

from .loader import KINDS
from .ranks import Job, device_of, is_launched, launch
from .recipe import Recipe, add_recipe
from .run import Run, check_unused, train
from .settings import Settings, add_settings

__all__ = ["Program", "add_options", "check_places"]

LONGEST = 31_536_000  # seconds: a year


def add_options(parser: argparse.ArgumentParser, recipe: type[Recipe], *, out: str, data: str) -> Any:
    """Add the options that all training programs have; every field of the recipe and of the engine's settings is one.

    Args:
        parser: Of the program.
        recipe: Of its runs.
        out: Where results go by default.
        data: What ``--data`` may be.

    Returns:
        The group of the recipe's options.
    """
    add = parser.add_argument
    add("--data", nargs="+", required=True, help=data)
    add("--output", "-o", dest="out", type=Path, default=Path(out), help="where results go (%(default)s)")
    add(
        "--hold-back",
        type=FloatRange(0, 0.99),
        default=0.0,
        metavar="SHARE",
        help="share of the photos that is kept from training, for measurements",
    )
    add("--evaluations", type=IntRange(1, 1_000_000), default=12, help="measurements on held-back photos (%(default)s)")
    add(
        "--seconds",
        type=FloatRange(0, LONGEST),
        default=float("inf"),
        help="stop after this time and write a checkpoint",
    )
    add("--save-every", type=FloatRange(1, LONGEST), default=120.0, help="seconds between checkpoints (%(default)s)")
    add("--resume", action="store_true", help="continue from the last checkpoint in OUT, if there is one")
    _add_engine(
        parser.add_argument_group(
            "engine", "how it computes, and how ranks share variables: docs/explanation/training_runs.md"
        )
    )
    group = parser.add_argument_group("recipe", "the numbers that determine the result")
    add_recipe(group, recipe)
    return group


def _add_engine(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="(%(default)s)")
    add(
        "--gpus", type=IntRange(1, 1024), metavar="N", help="start N processes, each with a GPU; on a CPU they use gloo"
    )
    add(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="start them on a Ray cluster: that of this machine (auto), local: a new one, or HOST:PORT",
    )
    add("--ray-cores", type=IntRange(1, 1024), default=1, help="cores that Ray reserves for each process (%(default)s)")
    add(
        "--restarts",
        type=IntRange(0, 1000),
        default=0,
        help="times that all of them start again after one, or its machine, died (%(default)s)",
    )
    add("--loader", choices=KINDS, default="resident", help="how photos get to the GPU (%(default)s)")
    add("--workers", type=IntRange(0, 1024), default=4, help="processes of --loader dataloader (%(default)s)")
    add("--readers", type=IntRange(1, 1024), default=8, help="threads of the SPDL loaders that read (%(default)s)")
    add(
        "--decoders",
        type=IntRange(0, 1024),
        default=0,
        help="threads that decode; 0: one a core, beside steps 8 at most",
    )
    add("--decoder", choices=("auto", "torchvision", "nvimgcodec"), default="auto", help="of spdl-gpu (%(default)s)")
    add("--skip-bad", action="store_true", help="replace photos that do not decode by the next ones")
    add("--trace", action="store_true", help="write OUT/trace.json for chrome://tracing, and a figure of the stages")
    add_settings(group)


@dataclass(frozen=True)
class Program:
    """A training program.

    Fields:
        path: The script, which its ranks run, too.
        run: What it trains.
        parse: Reads its command line.
        evaluate: Measures a model, where ``--evaluate`` is given.
        files: Options that name files, and the suffixes of those that must lie beside a ``.cfg``.
    """

    path: Path
    run: type[Run]
    parse: Callable[[Sequence[str] | None], argparse.Namespace]
    evaluate: Callable[[argparse.Namespace], None]
    files: dict[str, tuple[str, ...]]

    def main(self, arguments: Sequence[str] | None = None, signals: Sequence[int] | None = None) -> int:
        """Train, or evaluate; the exit status. A rank on Ray gets ``signals`` as a list that fills when it is to end."""
        arguments = sys.argv[1:] if arguments is None else list(arguments)
        options = self.parse(arguments)
        try:
            check_places(options, self.files)
            if options.evaluate:
                self.evaluate(options)
            elif (options.gpus or options.ray) and not is_launched():
                self._start(options, arguments)
            else:
                train(self.run, options, signals)
        except PytrtpluginsError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        return 0

    def _start(self, options: argparse.Namespace, arguments: Sequence[str]) -> None:
        """Start ``--gpus`` ranks, and again if one dies: therefore each continues where there is a checkpoint."""
        if not options.gpus:
            raise UsageError("--ray needs the number of ranks.\nDo: add --gpus 2, or as many as the cluster has")
        check_unused(options)
        kind, _, number = options.device.partition(":")
        if number:
            raise UsageError(
                f"--device {options.device} with --gpus: each rank gets a GPU of its own.\nDo: give --device {kind}"
            )
        if not options.ray:  # whose GPUs are those of other machines
            device_of(options.device, options.gpus if options.device == "cuda" else 1)
        settings = Settings.from_options(options, options.device)
        settings.check(options.device, options.gpus, joined=True)
        self.run.recipes.from_dict(vars(options)).check(options.gpus, settings.accumulate)
        job = Job(
            program=self.path.absolute(),
            arguments=[*arguments, "--resume", "--device", options.device],
            out=options.out,
            settings=settings,
            device=options.device,
            ranks=options.gpus,
            cores=options.ray_cores,
            restarts=options.restarts,
        )
        if options.ray:
            from .optional.ray import launch_on_ray

            launch_on_ray(job, options.ray)
        else:
            launch(job)


def check_places(options: argparse.Namespace, files: dict[str, tuple[str, ...]]) -> None:
    """Require a device that is there, and the files that are named.

    Raises:
        UsageError: one of them is missing; the message says which.
    """
    try:
        device = torch.device(options.device)
    except RuntimeError:
        raise UsageError(f"--device {options.device}: no such device.\nDo: give --device cuda or cpu") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"--device {options.device}: PyTorch finds no GPU here.\nDo: give --device cpu")
    for option, suffixes in files.items():
        path = getattr(options, option)
        if path is None:
            continue
        beside = suffixes if path.suffix == ".cfg" else ()
        for file in (path, *(path.with_suffix(suffix) for suffix in beside)):
            if not file.is_file():
                raise UsageError(f"--{option} {path}: {file} is not there.\nDo: ls {file.parent}")
