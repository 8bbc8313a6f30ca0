"""Ray Serve, one deployment, its own proxy."""

import os
import sys
import time

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_SERVE_LOG_TO_STDERR"] = "0"

import ray
from common import predict
from ray import serve
from starlette.responses import Response


@serve.deployment(max_ongoing_requests=64)
class Sum:
    """Bytes in, bytes out."""

    async def __call__(self, request):
        """Answer the body's sum."""
        return Response(predict(await request.body()))


if __name__ == "__main__":
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": os.getcwd()}}
    )
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Sum.bind(), route_prefix="/infer")
    while True:
        time.sleep(1)
