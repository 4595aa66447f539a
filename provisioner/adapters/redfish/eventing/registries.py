"""Message registries as BMCs serve them: how bad a message is, and which faults it ends (DSP8011).

A registry is fetched from the BMC that sent an event of it, and parsed once per content. What one
BMC serves holds for that BMC alone until a BMC of another node served the same: one that lies could
otherwise declare the faults of all others harmless.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping

from provisioner.adapters.redfish.parsing import Json, as_object, at, link, objects, path_of, text
from provisioner.adapters.redfish.walk import Walk
from provisioner.model.base import Record

FILES_MAX = 128  # registries that one BMC lists; a Dell has some 20
MESSAGES_MAX = 20_000  # of one registry; Dell's has some 6,000
CLEARED_MAX = 32  # messages that one ends
KEPT_MAX = 64  # contents in memory
BMCS_MAX = 4096
PER_BMC_MAX = 8  # registries that are fetched from one BMC


class RegistryMessage(Record):
    """The severity of a message ("" if it has none), and the keys of those that it ends."""

    severity: str = ""
    ends: tuple[str, ...] = ()
    ends_all: bool = False  # every message of its registry at the same origin


Registry = Mapping[str, RegistryMessage]


def read_registry(body: Json) -> Registry:
    """Return the messages of a registry by key; empty if it has none that can be read."""
    messages: dict[str, RegistryMessage] = {}
    for key, value in list(as_object(body.get("Messages")).items())[:MESSAGES_MAX]:
        message = as_object(value)
        if not isinstance(key, str) or len(key) > 128 or not message:
            continue
        clearing = as_object(message.get("ClearingLogic"))
        listed = clearing.get("ClearsMessage")
        ends = [text(one) for one in listed[:CLEARED_MAX]] if isinstance(listed, list) else []
        messages[key] = RegistryMessage(
            severity=text(message.get("MessageSeverity") or message.get("Severity")) or "",
            ends=tuple(one for one in ends if one),
            ends_all=clearing.get("ClearsAll") is True,
        )
    return messages


async def fetch_registry(walk: Walk, name: str) -> Registry:
    """Return the registry of this prefix as a BMC serves it; empty if it serves none.

    The language is English where there is one: only keys and severities are read.
    """
    files = (await walk.read_links(link(await walk.read_root(), "Registries")))[:FILES_MAX]
    near = sorted(files, key=lambda path: name.lower() not in path.lower())
    for path in near[:PER_BMC_MAX]:
        listed = (await walk.read(path)).data
        shown = text(listed.get("Registry")) or text(listed.get("Id")) or ""
        if shown.split(".")[0].lower() != name.lower():
            continue
        places = list(objects(listed.get("Location") or [], 16))
        places.sort(key=lambda place: not (text(place.get("Language")) or "").startswith("en"))
        uri = next((u for u in (path_of(at(p, "Uri")) for p in places) if u is not None), None)
        if uri is not None and (registry := read_registry((await walk.read(uri)).data)):
            return registry
    return {}


class RegistryShelf:
    """The registries that were fetched, in bounds."""

    def __init__(self) -> None:
        self._contents: OrderedDict[str, Registry] = OrderedDict()  # by digest, the newest last
        self._of_bmc: OrderedDict[str, dict[str, str]] = OrderedDict()  # BMC -> name -> digest
        self._servers: dict[tuple[str, str], set[str]] = {}  # (name, digest) -> nodes, two at most

    def find(self, bmc: str, name: str) -> Registry | None:
        """Return the registry that holds for this BMC ("" none was served); None: not known."""
        digest = self._of_bmc.get(bmc, {}).get(name)
        if digest is None:
            shared = [d for (n, d), nodes in self._servers.items() if n == name and len(nodes) > 1]
            digest = shared[0] if len(shared) == 1 else None
        if digest is None:
            return None
        return self._contents.get(digest) if digest else {}

    def has_room(self, bmc: str) -> bool:
        """Return whether one more registry may be fetched from this BMC."""
        return len(self._of_bmc.get(bmc, {})) < PER_BMC_MAX

    def keep(self, node: str, bmc: str, name: str, registry: Registry) -> None:
        """Keep what a BMC served; an empty one, so that it is not asked again."""
        digest = _digest(registry) if registry else ""
        self._of_bmc.setdefault(bmc, {})[name] = digest
        self._of_bmc.move_to_end(bmc)
        while len(self._of_bmc) > BMCS_MAX:
            self._of_bmc.popitem(last=False)
        if not digest:
            return
        nodes = self._servers.setdefault((name, digest), set())
        if len(nodes) < 2:
            nodes.add(node)
        self._contents.setdefault(digest, registry)
        self._contents.move_to_end(digest)
        while len(self._contents) > KEPT_MAX:
            gone, _ = self._contents.popitem(last=False)
            self._servers = {key: n for key, n in self._servers.items() if key[1] != gone}


def _digest(registry: Registry) -> str:
    shown = {key: list(message.model_dump().values()) for key, message in registry.items()}
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()
