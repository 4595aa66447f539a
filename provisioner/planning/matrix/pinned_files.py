"""List the files that a matrix names, for all its releases or for some."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix


def list_pinned_files(matrix: Matrix, releases: Collection[str]) -> Mapping[str, str]:
    """Return file name -> SHA-256 ("" if none is pinned), including images and all edges.

    An empty `releases` means all. Raises InputError for a name that is no release, and for a file
    that is pinned with two digests.
    """
    for name in releases:
        if name not in matrix.releases:
            remedy = "See `provisioner matrix show`."
            raise InputError("--release", name, "there is no such release", remedy)
    named: list[tuple[str, str]] = [(pin.artifact, pin.sha256) for pin in matrix.images.values()]
    for name, release in matrix.releases.items():
        if not releases or name in releases:
            for content in release.profiles.values():
                named += [(pin.artifact, pin.sha256) for pin in content.pins.values()]
    for edges in matrix.edges.values():
        named += [(edge.artifact, edge.sha256) for edge in edges]
    digests: dict[str, str] = {}
    for file, sha256 in named:
        if not file:
            continue
        if digests.get(file) and sha256 and digests[file] != sha256:
            problem = "the matrix pins it with two digests"
            raise InputError(file, sha256, problem, "Correct the matrix.")
        digests[file] = digests.get(file) or sha256
    return digests
