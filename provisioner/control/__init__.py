"""Whose turn it is: one activation path for start, event, timer and crash."""
