"""Erasure of disks and deployment of images, and the proof that the answers provide. Pure."""
