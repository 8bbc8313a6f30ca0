"""Made-up people and a small network with PReLU that tells them apart."""

import numpy as np
from onnx import helper, numpy_helper

from tests.onnx_parts import info, model, node

SIZE = 16


def photos(people=6, each=3, seed=0):
    """Images ``label/name``, (16, 16, 3) uint8: a pattern for each person, with noise."""
    random = np.random.default_rng(seed)
    found = {}
    for person in range(1, people + 1):
        pattern = random.integers(0, 256, (4, 4, 3)).repeat(4, axis=0).repeat(4, axis=1)
        for number in range(each):
            noise = random.integers(-20, 21, pattern.shape)
            found[f"s{person}/{number}.png"] = np.clip(pattern + noise, 0, 255).astype(np.uint8)
    return found


def network(batch="N", channels=8, seed=0):
    """Two convolutions with PReLU, then 4x4 patches as an embedding: (N, 3, 16, 16), values 0..255 → (N, 8 x 16)."""
    random = np.random.default_rng(seed)
    arrays = {
        "w": random.standard_normal((channels, 3, 3, 3)) / 5,
        "b": random.standard_normal(channels) / 5,
        "slope": random.random((channels, 1, 1)) / 2,
        "v": random.standard_normal((channels, channels, 3, 3)) / 8,
        "steep": random.random((channels, 1, 1)) / 2,
        "scale": np.array(1 / 127.5),
        "mean": np.array(127.5),
    }
    weights = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    return model(
        node("Sub", "data mean", "centred"),
        node("Mul", "centred scale", "scaled"),
        node("Conv", "scaled w b", "conv", pads=[1, 1, 1, 1]),
        node("PRelu", "conv slope", "act"),
        node("Conv", "act v", "second", pads=[1, 1, 1, 1]),
        node("PRelu", "second steep", "last"),
        node("AveragePool", "last", "pooled", kernel_shape=[4, 4], strides=[4, 4]),
        node("Flatten", "pooled", "embedding"),
        weights=weights,
        inputs=[info("data", [batch, 3, SIZE, SIZE])],
        outputs=["embedding"],
    )


def classifier(labels):
    """Distances to the first photo of each person, negated: as many classes as people."""
    patterns = np.stack([photos()[f"{label}/0.png"] for label in labels]).astype(np.float32)
    flat = patterns.transpose(0, 3, 1, 2).reshape(len(labels), -1)
    weights = [
        numpy_helper.from_array(2 * flat.T.copy(), "w"),
        numpy_helper.from_array(-(flat**2).sum(axis=1), "b"),
    ]
    return model(
        node("Flatten", "data", "flat"),
        helper.make_node("Gemm", ["flat", "w", "b"], ["scores"], "scores"),
        weights=weights,
        inputs=[info("data", ["N", 3, SIZE, SIZE])],
        outputs=["scores"],
    )
