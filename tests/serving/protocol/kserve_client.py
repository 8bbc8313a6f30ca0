"""KServe's own client, unchanged, asks a server: REST at the first argument, gRPC at the second. Prints what it got as JSON.

It runs in an environment of its own, since KServe needs other versions of some packages.
"""

import asyncio
import json
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput


def asked(binary, model="double"):
    """A request of two rows."""
    given = InferInput("x", [2, 2], "FP32")
    given.set_data_from_numpy(np.array([[1, 2], [3, 4]], np.float32), binary_data=binary)
    outputs = [RequestedOutput("y", {"binary_data": True})] if binary else None
    return InferRequest(model, [given], request_id="seven", request_outputs=outputs)


def told(answer):
    """What an answer says."""
    (output,) = answer.outputs
    values = [each.decode() if isinstance(each, bytes) else each for each in output.as_numpy().ravel().tolist()]
    return [answer.model_name, answer.id, output.name, output.datatype, output.shape, values]


def strings():
    """A request of strings."""
    given = InferInput("text", [2, 1], "BYTES")
    given.set_data_from_numpy(np.array([[b"ab"], ["ä".encode()]], np.object_), binary_data=True)
    return InferRequest("shout", [given], request_outputs=[RequestedOutput("loud", {"binary_data": True})])


async def error(call):
    """Which error it is."""
    try:
        await call
    except Exception as found:
        return type(found).__name__
    return None


async def rest(url):
    """Ask over REST."""
    async with InferenceRESTClient(RESTConfig(protocol="v2", retries=1)) as client:
        return {
            "live": await client.is_server_live(url),
            "ready": await client.is_server_ready(url),
            "model ready": await client.is_model_ready(url, "double"),
            "unknown ready": await client.is_model_ready(url, "nothing"),
            "JSON": told(await client.infer(url, asked(False), "double")),
            "bytes": told(await client.infer(url, asked(True), "double")),
            "strings": told(await client.infer(url, strings(), "shout")),
            "unknown model": await error(client.infer(url, asked(False), "nothing")),
        }


async def grpc(address):
    """Ask over gRPC."""
    async with InferenceGRPCClient(address) as client:
        return {
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "model ready": await client.is_model_ready("double"),
            "unknown ready": await client.is_model_ready("nothing"),
            "JSON": told(await client.infer(asked(False))),
            "bytes": told(await client.infer(asked(True))),
            "strings": told(await client.infer(strings())),
            "unknown model": await error(client.infer(asked(False, "nothing"))),
        }


if __name__ == "__main__":
    print(json.dumps({"rest": asyncio.run(rest(sys.argv[1])), "grpc": asyncio.run(grpc(sys.argv[2]))}))
