"""Builds the maintenance ramdisk from pinned inputs, and checks the result.

These are tools for operators and for CI; the daemon imports nothing from here. See
docs/maintenance-image.md.
"""
