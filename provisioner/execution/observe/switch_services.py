"""The pinned settings of a switch as a component, and the key of its TACACS+ servers.

A switch shows no key, so that the daemon compares the site's file with the key that it gave to
this switch last, which is in the encrypted store.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from provisioner.execution.actions.work import Site
from provisioner.model.inventory import Component
from provisioner.model.node import Node
from provisioner.planning.machine_settings import switch_sets
from provisioner.planning.machine_settings.pinned_sets import SWITCH
from provisioner.ports import Secret
from provisioner.ports.switch import Switch

_FILE_MAX = 4096
APPLIED = "applied"
STARTUP = "startup"


async def read_switch_settings(site: Site, node: Node, switch: Switch) -> tuple[Component, ...]:
    """Return the component; () where no set is pinned. Raises `PortError`."""
    sets = site.machine_sets.get(SWITCH)
    if not sets:
        return ()
    shown = (await switch.read_services(APPLIED), await switch.read_services(STARTUP))
    source = f"{switch.facts.name}: configuration"
    key = await read_key(site)
    has_key = not switch.facts.takes_tacacs_key or await is_current_key(site, node, key)
    return (switch_sets.build_component(shown, sets, source, has_key=has_key),)


def name_key(node: Node) -> str:
    """Return the name under which the key that a switch was given is stored."""
    return f"{node.id}/tacacs"


async def is_current_key(site: Site, node: Node, key: Secret | None) -> bool:
    """Return whether a switch was given this key last."""
    stored = await site.reach.credentials.current(name_key(node))
    return key is not None and stored is not None and stored[1].reveal() == key.reveal()


async def read_key(site: Site) -> Secret | None:
    """Return the key of the site's TACACS+ servers; None: no file has one."""
    path = site.settings.switch_tacacs_key_file
    if not path:
        return None

    def read() -> str:
        with Path(path).open("rb") as file:
            return file.read(_FILE_MAX).decode("utf-8", "replace").strip("\r\n")

    try:
        text = await asyncio.to_thread(read)
    except OSError:
        return None  # then the step that needs it names the file
    return Secret(text) if text else None
