"""Who may use a server, and what is recorded of requests."""
