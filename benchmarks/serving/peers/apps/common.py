"""The trivial model of all servers: the sum of the first 16 values of 64 bytes (float32) or of an image (uint8)."""

import numpy as np


def predict(body):
    """4 bytes, float32."""
    values = np.frombuffer(body, np.float32 if len(body) == 64 else np.uint8)
    return values[:16].astype(np.float32).sum(keepdims=True).tobytes()
