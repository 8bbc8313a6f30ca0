"""Data-parallel modes: tf_cnn_benchmarks' modes of sharing variables, on PyTorch.

- independent: nothing is shared; each rank trains a network of its own, the ceiling of what ranks can reach.
- replicated: DistributedDataParallel; all ranks hold all variables and add up their gradients.
- parameter_server: fully_shard (FSDP2); each variable has an owner for each of its parts, which updates it.
- distributed_replicated: DistributedDataParallel and ZeroRedundancyOptimizer; each rank updates its part of the
  variables, and the others copy it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from .ranks import Ranks
from .settings import Settings

with warnings.catch_warnings():  # its other optimizers are compiled by torch.jit, which is deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch.distributed.optim import ZeroRedundancyOptimizer

_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")  # the name before PyTorch 2.13
    if name in inspect.signature(DistributedDataParallel).parameters
)
__all__ = ["Mode", "StagedGradients", "own_part"]

SHARDED_ALONE = 1 << 18  # parameters from which a block is gathered alone; smaller ones are gathered with the rest
_WARM_UPS = 11  # of DistributedDataParallel: it looks at the clock in its first ten steps, which cannot be captured


class Mode:
    """One way to share variables. Without a process group every mode is the plain module.

    Args:
        module: On its device; ``fully_shard`` changes it, the other ways wrap it.
        settings: Which way.
        ranks: The processes.

    Attributes:
        forward: The module, or its wrapper: what a step calls.
        warm_ups: Steps that it needs before one can be captured in a CUDA graph.
    """

    def __init__(self, module: nn.Module, settings: Settings, ranks: Ranks) -> None:
        self.name, self.staged, self.warm_ups = settings.variable_update, None, 0
        self.forward: Callable[..., Any] = module
        self._module = module
        if not ranks.joined or self.name == "independent":
            return
        if settings.sync_bn:
            self._module = module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
        if self.name == "parameter_server":
            _shard(module, whole=settings.compile)
            return
        self.warm_ups = _WARM_UPS
        self.forward = wrapper = _replicate(module, settings, ranks.device)
        if settings.staged_vars:
            self.staged = StagedGradients(module)
            wrapper.register_comm_hook(self.staged, lambda staged, bucket: staged.swap(bucket))
        if settings.compact_gradient_transfer:
            # behind a function, since the wrapper takes the hook itself with NCCL only
            wrapper.register_comm_hook(None, lambda group, bucket: bf16_compress_hook(group, bucket))

    def exchange(self, enabled: bool) -> AbstractContextManager[Any]:
        """Context of a backward pass; gradients are exchanged in it only if ``enabled``."""
        if isinstance(self._module, FSDPModule):
            self._module.set_requires_gradient_sync(enabled)
        elif isinstance(self.forward, DistributedDataParallel) and not enabled:
            return self.forward.no_sync()
        return nullcontext()

    def optimizer(
        self, kind: type[torch.optim.Optimizer], groups: Iterable[Any], **options: Any
    ) -> torch.optim.Optimizer:
        """An optimizer of this mode; its groups must be of the parameters as the mode left them."""
        if self.name == "distributed_replicated" and isinstance(self.forward, DistributedDataParallel):
            return ZeroRedundancyOptimizer(groups, kind, **options)
        return kind(groups, **options)


def own_part(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer of those parameters that this rank updates."""
    return optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer


def _replicate(module: nn.Module, settings: Settings, device: torch.device) -> DistributedDataParallel:
    """Wrap a module whose gradients are averaged.

    Statistics of batch norm are not copied from rank 0 before each step: no training step reads them, and rank 0's are exported. After
    its first step the wrapper changes its buckets, and with them the order of sums, unless it has to look for unused parameters: else a
    resumed run would not give the same bits.
    """
    with _on_side_stream(device) if settings.cuda_graphs else nullcontext():
        return DistributedDataParallel(
            module,
            device_ids=[device] if device.type == "cuda" else None,
            find_unused_parameters=settings.deterministic,
            gradient_as_bucket_view=True,
            **{_SYNC_BUFFERS: False},
        )


@contextmanager
def _on_side_stream(device: torch.device) -> Iterator[None]:
    """Run on a side stream: the default one cannot be captured, and the wrapper adds gradients on the stream it was made on."""
    side, now = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    side.wait_stream(now)
    with torch.cuda.stream(side):
        yield
    now.wait_stream(side)


def _shard(module: nn.Module, *, whole: bool) -> None:
    """Shard each parameter over all ranks.

    Large blocks are gathered one by one, so that this overlaps with computing. ``whole``: all are gathered at once, since what gathers a
    block cannot be compiled, and the network around it then neither.
    """
    lists = [part for part in module.modules() if isinstance(part, nn.ModuleList) and not whole]
    for block in (block for part in lists for block in part):
        if sum(p.numel() for p in block.parameters()) >= SHARDED_ALONE:
            fully_shard(block)
    fully_shard(module)


class StagedGradients:
    """A communication hook: a step applies the gradients of the previous step while its own are exchanged.

    The first step gets zeros. Gradients are kept by parameter, since DistributedDataParallel changes its buckets after
    the first step.

    Args:
        module: Whose parameters they are.
    """

    def __init__(self, module: nn.Module) -> None:
        self._names = {parameter: name for name, parameter in module.named_parameters() if parameter.requires_grad}
        self._world = distributed.get_world_size()
        self._kept: dict[nn.Parameter, Tensor] = {}
        self._works: dict[nn.Parameter, distributed.Work] = {}

    def swap(self, bucket: distributed.GradBucket) -> torch.futures.Future[Tensor]:
        """Start the exchange of a bucket, and return the stored gradients of the previous step."""
        buffer, sent = bucket.buffer(), bucket.buffer().div(self._world)
        work = distributed.all_reduce(sent, async_op=True)
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if parameter in self._works:
                self._works[parameter].wait()
            start = gradient.storage_offset() - buffer.storage_offset()
            mine = sent[start : start + gradient.numel()].view_as(gradient)
            gradient.copy_(self._kept.get(parameter, torch.zeros_like(gradient)))
            self._kept[parameter], self._works[parameter] = mine, work
        future: torch.futures.Future[Tensor] = torch.futures.Future(
            devices=[buffer.device] if buffer.is_cuda else None,
        )
        future.set_result(buffer)
        return future

    def state(self) -> dict[str, Tensor]:
        """The gradients that the next step gets, by the parameters' names."""
        for work in self._works.values():
            work.wait()
        return {name: self._kept.get(p, torch.zeros_like(p)).contiguous() for p, name in self._names.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue with gradients of a checkpoint."""
        self._works.clear()
        self._kept = {parameter: state[name].clone() for parameter, name in self._names.items()}
