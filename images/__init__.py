"""Builds the maintenance ramdisk from pinned inputs, and checks what was built.

Tools for a person and for CI; the daemon imports nothing from here. See
docs/maintenance-image.md.
"""
