"""Targets of campaigns from the matrix."""
