"""What a server of models takes and gives under load, beside other servers with the same model.

``python -m benchmarks.serving`` measures rates, latencies, CPU and memory, and writes docs/lab/serving_benchmarks.md;
``python -m benchmarks.serving.soak`` kills processes under a mixed load; ``python -m benchmarks.serving.hostile`` adds clients
that behave badly. ``python -m benchmarks.serving.peers FOLDER`` installs the other servers.
"""
