"""JPEG files decoded on the GPU, by NVIDIA's nvImageCodec."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....utils.optional import require
from ....vision.device_images import DeviceImage
from ....vision.image import Image
from ..device.device import Device

__all__ = ["GpuImage", "JpegDecoder"]


class _Memory:
    """Images of nvImageCodec that wait to be used again, and their stream, on which their memory is freed: before it ends."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.free = stream, deque[Any]()

    def __del__(self) -> None:
        self.free.clear()


class GpuImage(DeviceImage):
    """An image that nvImageCodec holds. Its memory is used again for another when nobody holds this object any more.

    Args:
        held: nvImageCodec's image.
        memory: Where it goes then.
        device: Where its memory is.
    """

    def __init__(self, held: Any, memory: _Memory, device: Device) -> None:
        self._held, self._memory, self._device = held, memory, device
        facts = held.__cuda_array_interface__
        self.shape, self._address = facts["shape"], facts["data"][0]
        self._pitch = (facts.get("strides") or (3 * self.shape[1],))[0]

    def copy_to(self, memory: Any, stream: Any) -> None:
        """Queue a copy, row by row where rows are padded."""
        self._device.copy_rows(self._address, self._pitch, memory, 3 * self.shape[1], self.shape[0], stream)

    def download(self) -> Image:
        """A copy on the host."""
        return np.array(np.asarray(self._held.cpu()))

    def __del__(self) -> None:
        self._memory.free.append(self.__dict__.pop("_held"))


class JpegDecoder:
    """nvImageCodec on a GPU: its JPEG engines, where it has them, else its processors. One thread at a time may call it.

    EXIF's orientation is undone. Pixels may differ from the host's by a few steps, and more at sharp edges of colour, where chroma is
    interpolated otherwise.

    Args:
        device: The GPU.
        settings: Of nvImageCodec's ``Decoder``, beside the GPU's number; none: its own choice.

    Raises:
        MissingExtraError: nvImageCodec is not installed.
    """

    def __init__(self, device: Device, **settings: Any) -> None:
        os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")  # what it cannot decode is told by our own errors
        codec = require("nvidia.nvimgcodec", extra="nvjpeg", package="nvidia-nvimgcodec-cu13", feature='decode="gpu"')
        self._device, self._stream_of = device, codec.CodeStream
        self._params = codec.DecodeParams(apply_exif_orientation=True, color_spec=codec.ColorSpec.SRGB)
        self._decoder = codec.Decoder(device_id=device.number, **settings)
        with device.current():
            self._memory = _Memory(device.xp.cuda.Stream(non_blocking=True))

    def decode(self, files: Sequence[bytes]) -> list[DeviceImage | None]:
        """The image of each file, complete when this returns; None where it cannot be decoded."""
        memory = self._memory
        with self._device.current():
            streams = [self._stream_of(data) for data in files]
            used = [memory.free.popleft() if memory.free else None for _ in files]
            found = self._decoder.decode(streams, images=used, params=self._params, cuda_stream=memory.stream.ptr)
            memory.stream.synchronize()
        return [None if image is None else GpuImage(image, memory, self._device) for image in found]
