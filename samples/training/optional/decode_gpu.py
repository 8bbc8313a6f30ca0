"""Decode and shrink JPEG files on the GPU; unsupported files go to the CPU."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from pytrtplugins.errors import MissingExtraError, UsageError
from pytrtplugins.utils.optional import require
from pytrtplugins.vision.jpeg import read_header

from ..batch import GREY
from ..clock import Clock
from ..photos import Photos, shrink
from ..staging import Copies, Slot

__all__ = ["DECODERS", "GpuDecoder", "GpuDecoding"]

_MOST_PIXELS = 1 << 26  # of a photo that is decoded on the GPU
_MOST_BYTES = 1 << 26  # of photos that are shrunk together, which needs several times as much


class GpuDecoder(Protocol):
    """Interface of a decoder of a batch of files."""

    def decode(self, files: Sequence[bytes]) -> list[Tensor | None]:
        """The (height, width, 3) uint8 pixels of each file on the device, for its current stream; None where it cannot."""


class TorchvisionDecoder:
    """Decoder on nvJPEG, through torchvision."""

    def __init__(self, device: torch.device) -> None:
        self._device, feature = device, 'decoder "torchvision"'
        self._io = require("torchvision.io", extra="", package="torchvision", feature=feature)

    def decode(self, files: Sequence[bytes]) -> list[Tensor | None]:
        """See `GpuDecoder`."""
        inputs = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
        mode = self._io.ImageReadMode.RGB
        try:
            images = self._io.decode_jpeg(inputs, mode=mode, device=self._device)
        except RuntimeError:  # one of them is no JPEG file that it knows
            images = [self._alone(data, mode) for data in inputs]
        return [None if image is None else image.permute(1, 2, 0) for image in images]

    def _alone(self, data: Tensor, mode: Any) -> Tensor | None:
        try:
            return self._io.decode_jpeg([data], mode=mode, device=self._device)[0]
        except RuntimeError:
            return None


class NvimgcodecDecoder:
    """Decoder on NVIDIA's nvImageCodec, which uses the JPEG engines of GPUs that have them."""

    def __init__(self, device: torch.device) -> None:
        os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")  # what it cannot decode goes to the CPU
        codec = require(
            "nvidia.nvimgcodec", extra="nvjpeg", package="nvidia-nvimgcodec-cu13", feature='decoder "nvimgcodec"'
        )
        self._device, self._stream_of = device, codec.CodeStream
        self._params = codec.DecodeParams(apply_exif_orientation=False, color_spec=codec.ColorSpec.SRGB)
        self._decoder = codec.Decoder(device_id=device.index or 0)

    def decode(self, files: Sequence[bytes]) -> list[Tensor | None]:
        """See `GpuDecoder`."""
        stream = torch.cuda.current_stream(self._device).cuda_stream
        streams = [self._stream_of(file) for file in files]
        images = self._decoder.decode(streams, params=self._params, cuda_stream=stream)
        return [None if image is None else torch.as_tensor(image, device=self._device) for image in images]


DECODERS = {"torchvision": TorchvisionDecoder, "nvimgcodec": NvimgcodecDecoder}
"""By name, in the order in which "auto" tries them."""


def _make_decoder(choice: Any, device: torch.device) -> GpuDecoder:
    if not isinstance(choice, str):
        return choice
    if device.type != "cuda":
        raise UsageError(f"the loader spdl-gpu decodes on a GPU; the device is {device}.\nDo: give --loader spdl-cpu")
    if choice != "auto":
        if choice not in DECODERS:
            raise UsageError(f"decoder {choice!r} is unknown.\nDo: choose one of auto, {', '.join(DECODERS)}")
        return DECODERS[choice](device)
    try:
        return TorchvisionDecoder(device)
    except MissingExtraError:
        return NvimgcodecDecoder(device)


class GpuDecoding:
    """The decoding stage: from a batch's files to pixels on the device.

    Args:
        decoder: A name of `DECODERS`, "auto", or a `GpuDecoder`.
        photos: What decodes on the CPU, and replaces what does not decode there.
        copies: Of whose stream the work becomes a part.
        clock: Where it is counted.
    """

    def __init__(self, decoder: Any, photos: Photos, copies: Copies, clock: Clock) -> None:
        self._photos, self._copies, self._clock = photos, copies, clock
        self._decoder = _make_decoder(decoder, copies.device)

    def decode(self, step: int, records: Sequence[Any], slot: Slot) -> Tensor:
        """Decode a batch to (N, side, side, 3) uint8 pixels on the device, on the copy stream; keys and boxes go into the slot.

        Raises:
            ImageError: A photo does not decode, neither here nor on the CPU.
        """
        side, device = self._photos.side, self._copies.device
        with self._clock.stage("decode", len(records)), self._copies.stream():
            records, memory = list(records), slot.rows()
            images = self._decode([record.image for record in records])
            alike = defaultdict[torch.Size, list[int]](list)
            for row, image in enumerate(images):
                if image is None:
                    records[row], decoded = self._photos.decode(step, row, records[row])
                    image = images[row] = torch.tensor(decoded, device=device)
                alike[image.shape].append(row)
            pixels = torch.full((len(records), side, side, 3), GREY, dtype=torch.uint8, device=device)
            for rows in _together(alike):  # one call for photos of a size: each one is work for the host
                planes = torch.stack([images[row] for row in rows]).permute(0, 3, 1, 2)  # type: ignore[misc]
                small = shrink(planes, side).permute(0, 2, 3, 1)
                height, width = small.shape[1:3]
                pixels[rows, :height, :width] = small
                for row in rows:
                    memory.put_boxes(row, records[row].key, (width, height), records[row].boxes)
            if device.type == "cuda":  # the images are freed outside of this stream's order
                torch.cuda.current_stream(device).synchronize()
        return pixels

    def _decode(self, files: Sequence[bytes]) -> list[Tensor | None]:
        """Decode the JPEG files of usual size that are stored upright; None for all others."""
        headers = [read_header(file) for file in files]
        usual = [
            i
            for i, header in enumerate(headers)
            if header is not None and header.orientation == 1 and header.width * header.height <= _MOST_PIXELS
        ]
        images: list[Tensor | None] = [None] * len(files)
        for i, image in zip(usual, self._decoder.decode([files[i] for i in usual]) if usual else (), strict=True):
            images[i] = image
        return images


def _together(alike: Mapping[torch.Size, list[int]]) -> Iterator[list[int]]:
    """The rows of photos of a size, in parts that do not need much memory."""
    for dims, rows in alike.items():
        count = max(1, _MOST_BYTES // dims.numel())
        for begin in range(0, len(rows), count):
            yield rows[begin : begin + count]
