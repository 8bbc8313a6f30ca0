"""Requests that wait for a model, and the thread that runs it on batches of them."""
