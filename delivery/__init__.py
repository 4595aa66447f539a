"""Builds the forms in which the program is delivered, from a checkout and its lock of packages.

`make release` makes them in one folder with a signed list of digests. Each form is one module: the
wheel, the bill of materials, the Debian package, the container image and the Helm chart. The same
sources, lock and tools give the same bytes, so that a second person can build a release again and
compare the list.
"""
