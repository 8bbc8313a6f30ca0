"""What processes of a server share: memory without a name, slots and counts in it, and what they say to each other."""
