"""Component kinds: everything that has a version, one file of data per family. Pure: no clock.

`ALL` is in order of recognition: copies of images come first, the general rules of hosts last. A
field that a file leaves out has the default of `ComponentKind` or `Rule`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

import yaml

from provisioner.components.kind import UNCLASSIFIED, ComponentKind, Item, Rule, match_rule

FAMILIES = (
    "copies",
    "bluefield",
    "hgx",
    "nic",
    "drive",
    "host",
    "host_os",
    "host_settings",
    "host_software",
    "switch_os",
    "rack",
)


def _read_family(name: str) -> list[ComponentKind]:
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rows = yaml.load(text, Loader=loader)  # noqa: S506 (both loaders build plain values only)
    return [ComponentKind.model_validate(row) for row in rows]


ALL: dict[str, ComponentKind] = {
    kind.name: kind for family in FAMILIES for kind in _read_family(family)
}


@lru_cache(maxsize=16384)  # a fleet has few distinct items: 60 per node, the same on each
def classify(item: Item, bmc: str) -> tuple[str, str, str]:
    """Return (kind, slot, expression for the Id that it is a copy of) of one inventory item.

    `bmc` is the name of the BMC that lists the item. Unknown items are "unclassified", with their
    Id as the slot.
    """
    for kind in ALL.values():
        for rule in kind.rules:
            if (groups := match_rule(rule, item)) is not None:
                values = {"id": item.id, "bmc": bmc, **groups}
                quoted = {name: re.escape(value) for name, value in values.items()}
                return kind.name, rule.slot.format(**values), rule.of.format(**quoted)
    return UNCLASSIFIED, item.id, ""


__all__ = ["ALL", "UNCLASSIFIED", "ComponentKind", "Item", "Rule", "classify"]
