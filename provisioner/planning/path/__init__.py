"""The path of a node to its pinned versions: a search over version vectors. Pure."""
