"""Network → darknet's own .cfg and .weights."""

from __future__ import annotations

from pathlib import Path

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.files import write_atomic

from .network import Network

__all__ = ["write_darknet"]


def write_darknet(network: Network, cfg: str | Path, weights: str | Path | None = None) -> None:
    """Write a network as darknet files.

    Reading them again gives the identical network; darknet gives the identical output. Comments of the cfg are lost.

    Args:
        network: The network.
        cfg: The .cfg to write.
        weights: The .weights to write; None writes the cfg only.

    Raises:
        UsageError: weights are asked for and the network has none.
    """
    if weights is not None and network.weights is None:
        raise UsageError(f"{network.cfg.path}: the network has no weights to write.\nDo: write_darknet(network, cfg).")
    write_atomic(cfg, network.cfg.to_text().encode())
    if weights is not None and network.weights is not None:
        write_atomic(weights, network.weights.to_bytes())
