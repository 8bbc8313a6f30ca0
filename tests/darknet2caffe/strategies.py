"""Random networks of every feed-forward layer type, as the text of a .cfg.

`cases` draws networks that darknet computes and that must convert. The shapes that a layer needs are darknet's own rules,
told again from its sources in `drafts`, so that the converter's are not asked. `wild_cases` draws some values of the last
section blindly: that may be refused, and must be right where it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.darknet2caffe.drafts import ACTIVATIONS, Draft, draft

__all__ = ["Case", "cases", "wild_cases"]

_ALIASES = {
    **{"convolutional": "conv", "deconvolutional": "deconv", "connected": "conn", "maxpool": "max", "avgpool": "avg"},
    **{"normalization": "lrn", "softmax": "soft", "net": "network"},
}
_HEADERS = ((0, 2, 0), (0, 1, 0), (0, 2, 5), (1, 0, 0), (0, 1500, 0), (2000, 0, 0))
"""Versions of weights files: seen in 8 or 4 bytes; above 1000 connected weights are transposed."""


@dataclass(frozen=True)
class Case:
    """A network and how to try it.

    Attributes:
        text: The cfg; ``{folder}`` in it stands for the folder of its files.
        files: Names and texts of the files that it names.
        seed: For weights and images.
        header: Version of the weights file.
        fold: Whether batch normalization is folded into the weights.
        images: How many in a batch.
        wild: Whether its last section was drawn blindly.
    """

    text: str
    files: tuple[tuple[str, str], ...] = ()
    seed: int = 0
    header: tuple[int, int, int] = (0, 2, 0)
    fold: bool = True
    images: int = 1
    wild: bool = False

    def write(self, folder: Path) -> Path:
        """Write the cfg and its files into a folder; returns the cfg's path."""
        for name, text in self.files:
            (folder / name).write_text(text)
        path = folder / "random.cfg"
        path.write_text(self.text.replace("{folder}", str(folder)))
        return path


@st.composite
def cases(draw: st.DrawFn, least: int = 3, most: int = 25) -> Case:
    """A network that darknet computes and that must convert."""
    return _finished(draw, draft(draw, least, most))


@st.composite
def wild_cases(draw: st.DrawFn) -> Case:
    """A network with blind values in its last section, or of no known type there."""
    network = draft(draw, 2, 6)
    kind, options = network.sections[-1]
    for key in draw(st.lists(st.sampled_from(network.keys), min_size=1, max_size=3)) if network.keys else []:
        options[key] = draw(_wild_value(key))
    network.sections[-1] = draw(st.sampled_from([kind] * 20 + ["rnn", "lstm", "iseg", "nothing"])), options
    return replace(_finished(draw, network), wild=True)


def _finished(draw: st.DrawFn, network: Draft) -> Case:
    if network.image.is_map:
        c, h, w = network.image.shape
        net: dict[str, Any] = {
            "channels": c,
            "height": h,
            "width": w,
            **draw(st.sampled_from([{}, {"inputs": c * h * w}])),
        }
    else:
        net = {"inputs": network.image.count}
    net |= draw(
        st.sampled_from([{}, {"batch": 3}, {"batch": 4, "subdivisions": 2}, {"momentum": 0.9, "policy": "poly"}])
    )
    return Case(
        "".join(_written(draw, type, options) for type, options in [("net", net), *network.sections]),
        tuple(network.files.items()),
        seed=draw(st.integers(0, 2**16)),
        header=draw(st.sampled_from(_HEADERS)),
        fold=draw(st.booleans()),
        images=draw(st.integers(1, 2)),
    )


def _written(draw: st.DrawFn, type: str, options: Mapping[str, Any]) -> str:
    """The section in one of the ways in which darknet reads it the same."""
    lines = [f"{key}={value}" for key, value in options.items()]
    style = draw(
        st.sampled_from(["plain", "plain", "blanks", "comments", "behind", "unknown", "again", "reversed", "short"])
    )
    match style:
        case "blanks":
            lines = [f"  {line.replace('=', ' =  ')}\t" for line in lines] + ["", " \t "]
        case "comments":
            lines = ["# of a network = yes", *lines, ";[cost]"]
        case "behind":
            whole = {key for key, value in options.items() if isinstance(value, int)}
            lines = [f"{line} # {type}" if line.partition("=")[0] in whole else line for line in lines]
        case "unknown":
            lines += ["colour=4", "learning_rate=2" if type != "net" else "hue=.1"]
        case "again":
            lines += lines[:2]
        case "reversed":
            lines.reverse()
        case "short":
            type = _ALIASES.get(type, type)
    return "\n".join([f"[{type}]", *lines]) + "\n\n"


def _wild_value(key: str) -> st.SearchStrategy[Any]:
    small = st.integers(-3, 12)
    match key:
        case "activation":
            return st.sampled_from([*ACTIVATIONS, "mish", "Leaky", "none"])
        case "alpha" | "beta" | "scale" | "temperature" | "kappa":
            return st.sampled_from(["1", "0", "-1", "0.5", "2.5"])
        case "layers" | "mask" | "anchors" | "from":
            return st.lists(small, min_size=1, max_size=3).map(lambda items: ",".join(map(str, items)))
        case "tree":
            return st.just("none.tree")
    return small
