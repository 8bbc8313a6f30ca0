"""Two Ray nodes on this machine that train together, while a rank dies, and while a node is killed.

python -m tests.samples.training.two_nodes FOLDER
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from training.optional.ray import launch_on_ray
from training.ranks import Job
from training.settings import Settings

PROGRAM = Path(__file__).with_name("program.py")
FOUND_DEAD = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 4}


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.2"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": FOUND_DEAD})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()

    def train(*death: str) -> None:
        out = folder / death[0]
        out.mkdir()
        job = Job(PROGRAM, [str(out), *death], out, "cpu", Settings(), ranks=2, restarts=1)
        launch_on_ray(job, cluster.address)

    train("step", "1")
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(train, "node", second.node_id)
        while not (folder / "node/waits").exists() and not wait([training], 0.1).done:
            pass
        cluster.remove_node(second, allow_graceful=False)  # SIGKILL; the node's processes end with it
        cluster.add_node(num_cpus=1)
        training.result()
    cluster.shutdown()


if __name__ == "__main__":
    main()
