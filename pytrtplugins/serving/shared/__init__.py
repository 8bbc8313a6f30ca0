"""Memory that processes of a server share, and messages between them."""
