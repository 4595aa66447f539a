"""Which checks a node needs, what they prove, and whether it is certified. Pure."""
