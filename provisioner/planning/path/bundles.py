"""Firmware packages that no device reports by name: the versions of their parts identify them.

A package version runs if every part that it contains runs at the version listed in the matrix. If
the parts match no listed package, the closest one is reported to the operator with the parts that
differ.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model import versions
from provisioner.model.inventory import Inventory

SLOT = "bundle"  # a derived component has this one slot, independent of the slots of its parts


def find_differences(
    inventory: Inventory, contents: Mapping[str, str], grammars: Mapping[str, str]
) -> tuple[str, ...]:
    """Return a sentence for each part that does not run the version in `contents`; () if all do."""
    sentences: list[str] = []
    for kind, version in sorted(contents.items()):
        parts = inventory.of_kind(kind)
        if not parts:
            sentences.append(f"{kind} was not seen")
        grammar = grammars.get(kind, "opaque")
        sentences += [
            f"{kind}/{c.slot} runs {c.version or 'an unknown version'}, not {version}"
            for c in parts
            if c.version is None or not versions.is_same_version(grammar, c.version, version)
        ]
    return tuple(sentences)


def find_nearest_version(
    inventory: Inventory,
    contents_by_version: Mapping[str, Mapping[str, str]],
    grammars: Mapping[str, str],
) -> tuple[str, tuple[str, ...]] | None:
    """Return the bundle version with the fewest differing parts, and the differences.

    Returns None if `known` lists no version.
    """
    candidates = [
        (v, find_differences(inventory, contents_by_version[v], grammars))
        for v in sorted(contents_by_version)
    ]
    return min(candidates, key=lambda f: len(f[1]), default=None)
