"""A second zoo: networks that no kernel was tuned on, of torchvision, timm and transformers, and small ones of other kinds."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

__all__ = ["SECOND", "make_timm"]

_VIDEO, _SOUND, _POINTS = (3, 8, 112, 112), (1, 16000), (3, 1024)


class _Crnn(nn.Module):
    """Text lines of 32 pixels: convolutions to 40 columns, then two bidirectional LSTMs."""

    def __init__(self) -> None:
        super().__init__()
        widths, pools = (64, 128, 256, 256, 512), (2, 2, (2, 1), (2, 1), (2, 1))
        layers: list[nn.Module] = []
        for given, made, pool in zip((3, *widths), widths, pools, strict=False):
            layers += [nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU(), nn.MaxPool2d(pool)]
        self.features = nn.Sequential(*layers)
        self.first = nn.LSTM(512, 256, bidirectional=True, batch_first=True)
        self.second = nn.LSTM(512, 256, bidirectional=True, batch_first=True)
        self.head = nn.Linear(512, 37)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = self.features(x).squeeze(2).transpose(1, 2)
        return self.head(self.second(self.first(columns)[0])[0])


class _Unet3d(nn.Module):
    """Three levels of 3-D convolutions, as for medical volumes."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.downs = nn.ModuleList(map(self._block, (1, *widths), widths))
        self.ups = nn.ModuleList(
            nn.ConvTranspose3d(2 * each, each, 2, 2) for each in reversed(widths[:-1])
        )  # of the level below
        self.joins = nn.ModuleList(self._block(2 * each, each) for each in reversed(widths[:-1]))
        self.pool, self.last = nn.MaxPool3d(2), nn.Conv3d(width, 2, 1)

    @staticmethod
    def _block(given: int, made: int) -> nn.Module:
        return nn.Sequential(nn.Conv3d(given, made, 3, padding=1), nn.BatchNorm3d(made), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for number, down in enumerate(self.downs):
            x = down(self.pool(x) if number else x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.ups, self.joins, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


class _TasNet(nn.Module):
    """Separation of sounds as Conv-TasNet: an encoder of strides, blocks of dilated depthwise convolutions, a decoder."""

    def __init__(self, channels: int = 128, hidden: int = 256, blocks: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, channels, 16, stride=8, padding=4)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(channels, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden),
                nn.Conv1d(hidden, hidden, 3, padding=1 << (n % 8), dilation=1 << (n % 8), groups=hidden),
                nn.PReLU(), nn.GroupNorm(1, hidden), nn.Conv1d(hidden, channels, 1),
            )
            for n in range(blocks)
        )  # fmt: skip
        self.decoder = nn.ConvTranspose1d(channels, 1, 16, stride=8, padding=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixture = x = self.encoder(x)
        for block in self.blocks:
            x = x + block(x)
        return self.decoder(mixture * torch.sigmoid(x))


class _PointNet(nn.Module):
    """PointNet's classifier without its transforms: convolutions of one point each, the maximum of all points."""

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 64, 64, 128, 1024)
        self.points = nn.Sequential(
            *(
                layer
                for given, made in zip((3, *widths), widths, strict=False)
                for layer in (nn.Conv1d(given, made, 1), nn.BatchNorm1d(made), nn.ReLU())
            )
        )
        self.head = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 40))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.points(x).amax(2))


class _SuperResolution(nn.Module):
    """EDSR's small form: residual blocks, and PixelShuffle at the end."""

    def __init__(self, width: int = 64, blocks: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 12, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(blocks)
        )
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = first = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.shuffle(self.last(x + first))


class _Called(nn.Module):
    """A module that is called by a function of it and of the one input."""

    def __init__(self, inner: nn.Module, call: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self.inner, x)


def make_timm(name: str) -> nn.Module:
    """A network of timm with random weights."""
    return pytest.importorskip("timm", exc_type=ImportError).create_model(name, pretrained=False)


def _torchvision(family: str, name: str, **arguments: Any) -> nn.Module:
    pytest.importorskip("torchvision", exc_type=ImportError)
    return getattr(importlib.import_module(f"torchvision.models{family}"), name)(weights=None, **arguments)


def _last_flow(raft: Any, x: torch.Tensor) -> torch.Tensor:
    return raft(x[:, :3], x[:, 3:], num_flow_updates=4)[-1]


def _raft() -> nn.Module:
    """Two photos side by side in the channels → the last flow; 4 updates, for which an export takes a while."""
    return _Called(_torchvision(".optical_flow", "raft_small"), _last_flow)


def _transformers(
    model: str, config: str, call: Callable[[Any, torch.Tensor], torch.Tensor], **arguments: Any
) -> nn.Module:
    library = pytest.importorskip("transformers", exc_type=ImportError)
    return _Called(getattr(library, model)(getattr(library, config)(**arguments)), call)


def _hidden(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model(x).last_hidden_state


def _next_words(model: Any, x: torch.Tensor) -> torch.Tensor:
    """A decoder's hidden values; without a mask an export fails."""
    return model(x, attention_mask=torch.ones_like(x), use_cache=False).last_hidden_state


def _whisper(part: str) -> nn.Module:
    """Whisper-tiny's encoder, or a step of its decoder with the encoder's result in place of the input."""
    tiny = {
        "d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6, "decoder_attention_heads": 6,
        "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536,
    }  # fmt: skip

    return _transformers("WhisperModel", "WhisperConfig", _encoded if part == "encoder" else _decoder_step, **tiny)


def _encoded(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model.encoder(x).last_hidden_state


def _decoder_step(model: Any, x: torch.Tensor) -> torch.Tensor:
    words = torch.zeros(x.shape[0], 1, dtype=torch.int64, device=x.device)
    given = {"attention_mask": torch.ones_like(words), "encoder_hidden_states": x}  # without a mask an export fails
    return model.decoder(words, use_cache=False, **given).last_hidden_state


def _logits(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model(x).logits


def _classes_and_boxes(model: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([*model(x)[:2]], -1)


def _detr(model: str, config: str, **arguments: Any) -> nn.Module:
    return _transformers(model, config, _classes_and_boxes, **arguments)


_RESNET: dict[str, Any] = {
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
    "backbone_config": {"model_type": "resnet", "out_features": ["stage4"]},
}  # fmt: skip
"""DETR's first network of transformers itself, which asks no server for its sizes."""

SECOND: dict[str, dict[str, Any]] = {
    "maxvit_t": {"module": partial(_torchvision, "", "maxvit_t")},
    "swin_v2_t": {"module": partial(_torchvision, "", "swin_v2_t"), "side": 256, "convolutional": False},
    **{name: {"module": partial(make_timm, name)} for name in ("hrnet_w18", "mobilenetv4_conv_small", "repvgg_a2")},
    **{name: {"module": partial(make_timm, name), "side": 256} for name in ("mobilevit_s", "fastvit_t8")},
    "segformer_b0": {
        "module": partial(_transformers, "SegformerForSemanticSegmentation", "SegformerConfig", _logits),
        "side": 512,
    },
    "dinov2_small": {
        "module": partial(_transformers, "Dinov2Model", "Dinov2Config", _hidden, hidden_size=384, num_attention_heads=6),
        "convolutional": False,
    },
    "clip_vision": {
        "module": partial(_transformers, "CLIPVisionModel", "CLIPVisionConfig", _hidden), "convolutional": False,
    },
    "clip_text": {
        "module": partial(_transformers, "CLIPTextModel", "CLIPTextConfig", _hidden), "words": 77, "convolutional": False,
    },
    "whisper_tiny_encoder": {"module": partial(_whisper, "encoder"), "dims": (80, 3000)},
    "whisper_tiny_decoder_step": {"module": partial(_whisper, "step"), "dims": (1500, 384), "convolutional": False},
    "distilbert": {
        "module": partial(_transformers, "DistilBertModel", "DistilBertConfig", _hidden), "words": 128, "convolutional": False,
    },
    "gpt2": {
        "module": partial(_transformers, "GPT2Model", "GPT2Config", _next_words),
        "words": 64, "convolutional": False,
    },
    "t5_small_encoder": {
        "module": partial(_transformers, "T5EncoderModel", "T5Config", _hidden), "words": 128, "convolutional": False,
    },
    "rtdetr_r50": {"module": partial(_detr, "RTDetrForObjectDetection", "RTDetrConfig"), "side": 640},
    "detr_r50": {"module": partial(_detr, "DetrForObjectDetection", "DetrConfig", **_RESNET), "side": 512},
    "raft_small": {"module": _raft, "dims": (6, 128, 128), "convolutional": False},
    "r3d_18": {"module": partial(_torchvision, ".video", "r3d_18"), "dims": _VIDEO},
    "unet_3d": {"module": _Unet3d, "dims": (1, 32, 64, 64)},
    "crnn": {"module": _Crnn, "dims": (3, 32, 160)},
    "tasnet": {"module": _TasNet, "dims": _SOUND},
    "pointnet": {"module": _PointNet, "dims": _POINTS},
    "super_resolution": {"module": _SuperResolution, "side": 128},
}  # fmt: skip
"""Name → what the network is made of; the rest is as in zoo.py."""
