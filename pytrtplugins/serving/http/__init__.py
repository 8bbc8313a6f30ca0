"""Connections, bodies and answers of HTTP, within limits."""
