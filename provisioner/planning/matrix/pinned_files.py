"""List the files that a matrix names, for all its releases or for some."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node


def list_pinning_places(matrix: Matrix) -> Mapping[str, Sequence[str]]:
    """Return file name -> the pins, edges and images that name it, in words."""
    places: dict[str, list[str]] = {}
    for file, _, place in _list_references(matrix):
        places.setdefault(file, []).append(place)
    return places


def list_pinned_digests(matrix: Matrix, file: str) -> tuple[str, ...]:
    """Return the digests that a matrix pins for a file; "" for a place that pins none."""
    return tuple(sha256 for name, sha256, _ in _list_references(matrix) if name == file)


def list_given_nodes(matrix: Matrix, nodes: Iterable[Node], file: str) -> tuple[str, ...]:
    """Return the nodes whose release and profile pin a file, by name."""
    return tuple(sorted(n.id for n in nodes if _is_given(matrix, n, file)))


def _list_references(matrix: Matrix) -> Iterator[tuple[str, str, str]]:
    """Yield (file, SHA-256, place) of everything that names a file."""
    for release, content in matrix.releases.items():
        for profile, pinned in content.profiles.items():
            for kind, pin in pinned.pins.items():
                if pin.artifact:
                    yield pin.artifact, pin.sha256, f"{release}/{profile}: {kind}"
    for kind, edges in matrix.edges.items():
        for edge in edges:
            if edge.artifact:
                yield edge.artifact, edge.sha256, f"edge of {kind} to {edge.to}"
    for image, pin in matrix.images.items():
        if pin.artifact:
            yield pin.artifact, pin.sha256, f"image {image}"


def _is_given(matrix: Matrix, node: Node, file: str) -> bool:
    release = matrix.releases.get(node.release)
    profile = None if release is None else release.profiles.get(node.profile)
    return profile is not None and any(pin.artifact == file for pin in profile.pins.values())


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
