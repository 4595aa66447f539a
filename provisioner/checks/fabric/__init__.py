"""Checks among nodes: pairs, rails and collectives, and the judges of their output. Pure."""
