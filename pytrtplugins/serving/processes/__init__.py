"""The processes of a server, and what starts, joins and replaces them."""
