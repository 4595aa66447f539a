"""Records of taking over a site that already serves."""
