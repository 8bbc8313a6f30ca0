"""The processes of a server, and the supervisor that starts, connects and replaces them."""
