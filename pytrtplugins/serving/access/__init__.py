"""Access to a server: keys, TLS, CORS, logs and traces."""
