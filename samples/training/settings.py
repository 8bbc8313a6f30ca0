"""Settings of a run's computation: precision, layout, compiler, data parallelism. Hyperparameters are in the recipe."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.numbers import IntRange

__all__ = ["ALL_REDUCES", "PRECISIONS", "VARIABLE_UPDATES", "Settings", "add_settings"]

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
FORMATS = ("NCHW", "NHWC")
VARIABLE_UPDATES = ("independent", "replicated", "parameter_server", "distributed_replicated")
ALL_REDUCES = ("auto", "nccl", "nccl/ring", "nccl/tree", "gloo")
CAPTURED = ("independent", "replicated")  # modes of several ranks whose steps may be captured
HOOKED = ("replicated", "distributed_replicated")  # modes of DistributedDataParallel, which takes a communication hook


@dataclass(frozen=True)
class Settings:
    """Settings of a run's computation, named like tf_cnn_benchmarks' flags if it has one.

    Fields:
        precision: fp32, tf32, bf16 or fp16; parameters and the optimizer stay in the module's own type.
        data_format: NCHW or NHWC, the memory layout of images and weights.
        compile: Whether torch.compile compiles the step.
        cuda_graphs: Whether forward and backward are captured once and replayed.
        variable_update: How ranks share variables, one of ``VARIABLE_UPDATES``.
        staged_vars: Whether a step uses the gradients of the step before, so that their exchange overlaps a whole step.
        compact_gradient_transfer: Whether gradients are exchanged as BF16, half as many bytes, and rounded to it.
        all_reduce_spec: The library, and for NCCL the algorithm, of exchanges.
        sync_bn: Whether batch norm uses the statistics of all ranks.
        accumulate: Parts into which a rank's batch is split; one update follows all of them.
        deterministic: Whether only operations are used that give the same bits each time.
    """

    precision: str = "fp32"
    data_format: str = "NHWC"
    compile: bool = False
    cuda_graphs: bool = False
    variable_update: str = "replicated"
    staged_vars: bool = False
    compact_gradient_transfer: bool = False
    all_reduce_spec: str = "auto"
    sync_bn: bool = False
    accumulate: int = 1
    deterministic: bool = False

    @classmethod
    def from_options(cls, options: argparse.Namespace, device: str) -> Settings:
        """The settings of a command line; defaults of precision and compiler depend on the device."""
        values = {f.name: getattr(options, f.name) for f in fields(cls)}
        values["precision"] = values["precision"] or ("bf16" if device == "cuda" else "fp32")
        if values["compile"] is None:
            values["compile"] = device == "cuda" and not values["deterministic"]
        return cls(**values)

    @property
    def memory_format(self) -> torch.memory_format:
        """PyTorch's name of the layout."""
        return torch.channels_last if self.data_format == "NHWC" else torch.contiguous_format

    @property
    def dtype(self) -> torch.dtype | None:
        """The element type of autocast; None: there is none."""
        return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)

    @property
    def fuses(self) -> bool:
        """Whether layers of a task may be joined on a GPU: with 16 bits, channels last, and batch norm that is each rank's own."""
        return self.dtype is not None and self.data_format == "NHWC" and not self.sync_bn

    def check(self, device: str, world: int, *, joined: bool) -> None:
        """Refuse what cannot work.

        Args:
            device: Kind of device: ``cuda`` or ``cpu``.
            world: Number of ranks.
            joined: Whether the ranks have a process group, as torchrun's and those of ``--gpus`` have.

        Raises:
            UsageError: the settings contradict each other, or the device; the message says why.
        """
        for contradiction in self._contradictions(device != "cuda", world, joined):
            raise UsageError(contradiction)

    def _contradictions(self, cpu: bool, world: int, joined: bool) -> Iterator[str]:
        update, mode, reduce = self.variable_update, f"--variable_update {self.variable_update}", self.all_reduce_spec
        if self.precision == "tf32" and cpu:
            yield "--precision tf32 on a CPU: TF32 is a format of NVIDIA's tensor cores.\nDo: give --precision fp32 or bf16"
        if self.cuda_graphs and cpu:
            yield "--cuda_graphs: there is nothing to capture without a GPU.\nDo: leave it out, or give --device cuda"
        if self.cuda_graphs and (world > 1 or joined):
            for option, is_set in (
                (mode, update not in CAPTURED),
                ("--staged_vars", self.staged_vars),
                (f"--all_reduce_spec {reduce}", reduce == "gloo"),
                ("--sync_bn", self.sync_bn),
                (f"--accumulate {self.accumulate}", self.accumulate > 1),
                ("--deterministic", self.deterministic),
            ):
                if is_set:
                    yield (
                        f"--cuda_graphs with {option} in a process group of {world}: what ranks exchange is not captured so.\n"
                        "Do: leave one of the two out"
                    )
        for option, is_set in (
            ("--staged_vars", self.staged_vars),
            ("--compact_gradient_transfer", self.compact_gradient_transfer),
        ):
            if is_set and update not in HOOKED:
                yield (
                    f"{option} with {mode}: a hook of DistributedDataParallel, which this mode does not use.\n"
                    f"Do: give --variable_update {' or '.join(HOOKED)}"
                )
            if is_set and not joined:
                yield (
                    f"{option} in one process without torchrun: no gradients are exchanged.\n"
                    "Do: give --gpus 1 or more, or leave it out"
                )
        if self.staged_vars and self.compact_gradient_transfer:
            yield (
                "--staged_vars with --compact_gradient_transfer: DistributedDataParallel takes one hook.\n"
                "Do: leave one of the two out"
            )
        if self.staged_vars and self.precision == "fp16":
            yield (
                "--staged_vars with --precision fp16: the gradients of the step before have another loss scale.\n"
                "Do: give --precision bf16"
            )
        if self.sync_bn and cpu:
            yield "--sync_bn: PyTorch's SyncBatchNorm runs on GPUs only.\nDo: leave it out"
        if self.sync_bn and update == "independent":
            yield f"--sync_bn with {mode}: these ranks exchange nothing.\nDo: leave --sync_bn out"
        if reduce.startswith("nccl") and cpu:
            yield f"--all_reduce_spec {reduce}: NCCL needs GPUs.\nDo: give --all_reduce_spec gloo"
        if self.compile and self.deterministic:
            yield "--compile with --deterministic: the compiler chooses kernels by timing them.\nDo: leave one of the two out"


def add_settings(parser: Any) -> None:
    """Add an option for each field of `Settings` to a parser, or to a group of one."""
    add = parser.add_argument
    add("--precision", choices=PRECISIONS, help="of the network's arithmetic (bf16 on a GPU, fp32 on a CPU)")
    add("--data_format", choices=FORMATS, default="NHWC", help="layout of images and weights (%(default)s)")
    add("--compile", action=argparse.BooleanOptionalAction, help="compile the step with torch.compile (on a GPU: yes)")
    add("--cuda_graphs", action="store_true", help="capture forward and backward once, and replay them")
    add(
        "--variable_update",
        choices=VARIABLE_UPDATES,
        default="replicated",
        help="how ranks share variables (%(default)s)",
    )
    add("--staged_vars", action="store_true", help="a step uses the gradients of the step before")
    add("--compact_gradient_transfer", action="store_true", help="exchange gradients as BF16, half as many bytes")
    add("--all_reduce_spec", choices=ALL_REDUCES, default="auto", help="library and algorithm of exchanges")
    add("--sync_bn", action="store_true", help="batch norm uses the statistics of all ranks")
    add(
        "--accumulate",
        type=IntRange(1, 1024),
        default=1,
        help="parts of a rank's batch before one update (%(default)s)",
    )
    add("--deterministic", action="store_true", help="use only operations that give the same bits each time")
