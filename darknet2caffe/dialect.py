"""The dialect of a cfg: pjreddie's darknet, or AlexeyAB's fork, in which some keys and layers mean something else."""

from __future__ import annotations

from typing import Literal

from pytrtplugins.errors import UsageError

from .cfg import Cfg
from .layers import ALEXEYAB_ACTIVATIONS, ALEXEYAB_TRAINING_KEYS, ALEXEYAB_TYPES, LAYER_TYPES, Dialect

__all__ = ["ALEXEYAB_NET_KEYS", "DIALECTS", "DialectChoice", "choose_dialect"]

DialectChoice = Literal["auto", "pjreddie", "alexeyab"]
DIALECTS: tuple[DialectChoice, ...] = ("auto", "pjreddie", "alexeyab")

ALEXEYAB_NET_KEYS = frozenset(
    [
        *("letter_box", "mosaic", "mosaic_bound", "cutmix", "mixup", "flip", "blur", "gaussian_noise", "track"),
        *("optimized_memory", "workspace_size_limit_MB", "contrastive", "contrastive_jit_flip", "contrastive_color"),
        *("label_smooth_eps", "sgdr_cycle", "sgdr_mult", "seq_scales", "augment_speed", "init_sequential_subdivisions"),
        *("sequential_subdivisions", "num_sigmas_reject_badlabels", "equidistant_point", "ema_alpha", "loss_scale"),
        *("dynamic_minibatch", "unsupervised", "adversarial_lr", "attention", "max_chart_loss", "try_fix_nan"),
        *("badlabels_rejection_percentage", "weights_reject_freq", "use_cuda_graph", "resize_step"),
        *("show_receptive_field", "cutmix_threshold", "learning_rate_min"),
    ]
)
"""Keys of ``[net]`` that only the fork reads; all belong to training and drawing, except letter_box."""


def choose_dialect(cfg: Cfg, choice: str) -> tuple[Dialect, str]:
    """The dialect to read a cfg in, and why.

    ``auto`` takes the fork's at the first section, key or activation that only the fork has, and pjreddie's otherwise.

    Raises:
        UsageError: ``choice`` is none of the choices.
    """
    if choice not in DIALECTS:
        raise UsageError(f"dialect={choice!r}: expected one of {', '.join(DIALECTS)}")
    if choice != "auto":
        return ("alexeyab" if choice == "alexeyab" else "pjreddie"), "as asked for"
    for option in cfg.net.options:
        if option.key in ALEXEYAB_NET_KEYS:
            return "alexeyab", f"line {option.line}: only AlexeyAB's darknet reads {option.key}= in [net]"
    for section in cfg.layers:
        if section.type in ALEXEYAB_TYPES:
            return "alexeyab", f"line {section.line}: [{section.type}] is a layer of AlexeyAB's darknet"
        cls = LAYER_TYPES.get(section.type)
        if cls is None:
            continue
        theirs = cls.alexeyab_keys | cls.alexeyab_training_keys | cls.alexeyab_refused.keys() | ALEXEYAB_TRAINING_KEYS
        for option in section.options:
            if option.key in theirs:
                return (
                    "alexeyab",
                    f"line {option.line}: only AlexeyAB's darknet reads {option.key}= in [{section.type}]",
                )
            if option.key == "activation" and option.value in ALEXEYAB_ACTIVATIONS:
                return "alexeyab", f"line {option.line}: {option.value} is an activation of AlexeyAB's darknet"
    return "pjreddie", "nothing in it is AlexeyAB's alone"
