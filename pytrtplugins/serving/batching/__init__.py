"""Queues of requests, and the threads that run models on batches of them."""
