"""Records of one machine beside its inventory: its settings."""
