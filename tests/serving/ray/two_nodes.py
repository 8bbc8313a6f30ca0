"""Two Ray nodes on this machine, and clients that count what they lose when one is killed; prints the counts as JSON.

Run by test_two_nodes.py; arguments: the bytes of a body, the seconds of load.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
from collections import Counter

import numpy as np

from pytrtplugins.serving import Model, ModelSpec
from pytrtplugins.serving.scale import Scale

CLIENTS, MODEL_S, PORT = 4, 0.02, 18112


class Total(Model):
    """The sum of a body's bytes, after 20 ms, and the process that computed it."""

    stacked = False

    def preprocess(self, request):
        return {"x": np.frombuffer(request.body, np.uint8)}

    def predict(self, batch):
        time.sleep(MODEL_S)
        return [{"sum": np.int64(item["x"].sum(dtype=np.int64))} for item in batch]

    def postprocess(self, outputs, request):
        import ray

        return {"sum": int(outputs["sum"]), "node": ray.get_runtime_context().get_node_id(), "pid": os.getpid()}


def load(size, stop, counts, nodes, slowest):
    """One client with a connection of its own, which asks again and again, and never sends a request twice."""
    random = np.random.default_rng(threading.get_ident() % 1000)
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    while not stop.is_set():
        body = random.integers(0, 256, size, np.uint8)
        started = time.perf_counter()
        try:
            connection.request("POST", "/v1/models/total:predict", body.tobytes())
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 200:
                counts[f"status {answer.status}"] += 1
            else:
                found = json.loads(said)
                nodes[found["node"], found["pid"]] += 1
                counts["right" if found["sum"] == int(body.sum(dtype=np.int64)) else "wrong"] += 1
        except (OSError, http.client.HTTPException) as error:
            counts[type(error).__name__] += 1
            connection.close()
        slowest[0] = max(slowest[0], time.perf_counter() - started)


def main(size, seconds):
    from pytrtplugins.serving.ray import serve_on_ray
    from pytrtplugins.serving.ray.run import apply_settings

    apply_settings()
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    counts: Counter = Counter()
    nodes: Counter = Counter()
    slowest = [0.0]

    def run():
        stop = threading.Event()
        clients = [
            threading.Thread(target=load, args=(size, stop, counts, nodes, slowest), daemon=True)
            for _ in range(CLIENTS)
        ]
        for each in clients:
            each.start()
        time.sleep(seconds / 2)
        before = dict(nodes)
        os.kill(next(pid for node, pid in before if node == second.node_id), signal.SIGKILL)  # amid requests
        cluster.remove_node(second, allow_graceful=False)  # SIGKILL too; a node's other processes end with it
        time.sleep(seconds / 2)
        lives = {node: nodes[node, pid] - before.get((node, pid), 0) for node, pid in nodes}
        stop.set()
        for each in clients:
            each.join(60)
        found = {
            "counts": counts,
            "before": {(node == second.node_id and "killed") or "kept": count for (node, _), count in before.items()},
            "after": {(node == second.node_id and "killed") or "kept": count for node, count in lives.items()},
            "slowest_s": round(slowest[0], 3),
        }
        print(json.dumps(found))

    ray.init(cluster.address)
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": PORT})
    ray.shutdown()
    scale = Scale(min_replicas=2, max_replicas=2, cpus=1, memory_mib=256)
    spec = ModelSpec("total", f"{__file__}:Total")
    serve_on_ray([spec], cluster.address, port=PORT, scale=scale, wait=run, announce=lambda text: None)
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
