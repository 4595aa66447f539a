"""Plan the path of a node to its pinned versions by a search over version vectors. Pure."""
