"""What is behind the network code: models in this process, or in others."""
