"""How ranks share variables: tf_cnn_benchmarks' modes, each by what PyTorch has for it.

- independent: nothing is shared; each rank trains a network of its own, the ceiling of what ranks can reach.
- replicated: DistributedDataParallel; all ranks hold all variables and add up their gradients.
- parameter_server: fully_shard (FSDP2); each variable has an owner for each of its parts, which updates it.
- distributed_replicated: DistributedDataParallel and ZeroRedundancyOptimizer; each rank updates its part of the
  variables, and the others copy it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from .ranks import Ranks
from .settings import Settings

with warnings.catch_warnings():  # its other optimizers are compiled by torch.jit, which is deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch.distributed.optim import ZeroRedundancyOptimizer

__all__ = ["Mode", "StagedGradients", "own_part"]

SHARDED_ALONE = 1 << 18  # parameters from which a block is gathered alone; smaller ones are gathered with the rest


class Mode:
    """One way to share variables. Without a process group every way is the plain module.

    Args:
        module: On its device; ``fully_shard`` changes it, the other ways wrap it.
        settings: Which way.
        ranks: The processes.

    Attributes:
        forward: The module, or its wrapper: what a step calls.
    """

    def __init__(self, module: nn.Module, settings: Settings, ranks: Ranks) -> None:
        self.name, self.staged = settings.variable_update, None
        self.forward: Callable[..., Any] = module
        self._module = module
        if not ranks.joined or self.name == "independent":
            return
        if settings.sync_bn:
            self._module = module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
        if self.name == "parameter_server":
            _shard(module)
            return
        devices = [ranks.device] if ranks.device.type == "cuda" else None
        # after its first step it changes its buckets, and with them the order of sums, unless it has to look for unused parameters:
        # a resumed run would not give the same bits
        wrapper = DistributedDataParallel(module, device_ids=devices, find_unused_parameters=settings.deterministic)
        self.forward = wrapper
        if settings.staged_vars:
            self.staged = StagedGradients(module)
            wrapper.register_comm_hook(self.staged, lambda staged, bucket: staged.swap(bucket))

    def exchange(self, wanted: bool) -> AbstractContextManager[Any]:
        """The context of a backward computation; gradients are exchanged in it only if that is wanted."""
        if isinstance(self._module, FSDPModule):
            self._module.set_requires_gradient_sync(wanted)
        elif isinstance(self.forward, DistributedDataParallel) and not wanted:
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


def _shard(module: nn.Module) -> None:
    """Give every rank a part of each parameter; large blocks are gathered one by one, so that this overlaps with computing."""
    lists = [part for part in module.modules() if isinstance(part, nn.ModuleList)]
    for block in (block for part in lists for block in part):
        if sum(p.numel() for p in block.parameters()) >= SHARDED_ALONE:
            fully_shard(block)
    fully_shard(module)


class StagedGradients:
    """A communication hook: a step gets the gradients of the step before, and its own are exchanged meanwhile.

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
        """Begin the exchange of a bucket, and answer with what was kept."""
        buffer, sent = bucket.buffer(), bucket.buffer().div(self._world)
        work = distributed.all_reduce(sent, async_op=True)
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if parameter in self._works:
                self._works[parameter].wait()
            start = gradient.storage_offset() - buffer.storage_offset()
            mine = sent[start : start + gradient.numel()].view_as(gradient)
            gradient.copy_(self._kept.get(parameter, torch.zeros_like(gradient)))
            self._kept[parameter], self._works[parameter] = mine, work
        done: torch.futures.Future[Tensor] = torch.futures.Future(
            devices=[buffer.device] if buffer.is_cuda else None,
        )
        done.set_result(buffer)
        return done

    def state(self) -> dict[str, Tensor]:
        """The gradients that the next step gets, by the parameters' names."""
        for work in self._works.values():
            work.wait()
        return {name: self._kept.get(p, torch.zeros_like(p)).contiguous() for p, name in self._names.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue with gradients of a checkpoint."""
        self._works.clear()
        self._kept = {parameter: state[name].clone() for parameter, name in self._names.items()}
