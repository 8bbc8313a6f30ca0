"""LitServe."""

import sys

import litserve
import numpy as np


class Sum(litserve.LitAPI):
    """JSON in and out."""

    def setup(self, device):
        """Nothing to load."""

    def decode_request(self, request):
        """The values."""
        return np.array(request["x"], np.float32)

    def predict(self, x):
        """Their sum."""
        return x[:16].sum()

    def encode_response(self, output):
        """As JSON."""
        return {"y": float(output)}


if __name__ == "__main__":
    litserve.LitServer(Sum(), accelerator="cpu").run(
        port=int(sys.argv[1]), log_level="error", generate_client_file=False
    )
