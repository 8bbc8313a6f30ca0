"""MLServer."""

import asyncio
import socket
import sys

import numpy as np
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Sum(MLModel):
    """Tensors in and out."""

    async def load(self):
        """Nothing to load."""
        return True

    async def predict(self, payload):
        """The sum of the values."""
        x = NumpyCodec.decode_input(payload.inputs[0])
        y = x[:, :16].astype(np.float32).sum(1, keepdims=True)
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])


async def main(port):
    """Serve."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        other = free.getsockname()[1]
    settings = Settings(
        http_port=port, grpc_port=other, metrics_endpoint=None, parallel_workers=0, debug=False, host="127.0.0.1"
    )
    await MLServer(settings).start([ModelSettings(name="tiny", implementation=Sum)])


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
