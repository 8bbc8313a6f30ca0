"""HTTP connections, bodies and answers, within limits."""
