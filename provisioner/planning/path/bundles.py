"""Components that no device reports by name: a firmware package is known by its contents.

Its running version is the one whose contents are all that runs. Where parts differ from every
known package, the nearest one tells a person which parts those are.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model import versions
from provisioner.model.inventory import Inventory

SLOT = "bundle"  # a derived component has one slot, whatever its parts are called


def differences(
    inventory: Inventory, contents: Mapping[str, str], grammars: Mapping[str, str]
) -> tuple[str, ...]:
    """What runs otherwise than these contents say, as sentences for a person; () if nothing."""
    out: list[str] = []
    for kind, wanted in sorted(contents.items()):
        parts = inventory.of_kind(kind)
        if not parts:
            out.append(f"{kind} was not seen")
        grammar = grammars.get(kind, "opaque")
        out += [
            f"{kind}/{c.slot} runs {c.version or 'an unknown version'}, not {wanted}"
            for c in parts
            if c.version is None or not versions.equal(grammar, c.version, wanted)
        ]
    return tuple(out)


def nearest(
    inventory: Inventory, known: Mapping[str, Mapping[str, str]], grammars: Mapping[str, str]
) -> tuple[str, tuple[str, ...]] | None:
    """The bundle version that differs in the fewest parts, with these; None if none is known."""
    found = [(v, differences(inventory, known[v], grammars)) for v in sorted(known)]
    return min(found, key=lambda f: len(f[1]), default=None)
