"""Makers' files and pages as statements of versions. Pure: it is given bytes."""
