"""Moves ports between VRFs, and proves by reading where they are."""
