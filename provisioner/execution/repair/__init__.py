"""Evidence of a repair case, collected and bundled."""
