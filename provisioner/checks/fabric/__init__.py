"""Checks that involve several nodes: pairs, rails and collectives, and their judges. Pure."""
