"""One writer for each switch: tenants' revisions and moves of ports take turns on a leaf.

Two revisions that overlap are each applied on what was there when it was made; the later one may
then be refused, or be read as done while the earlier one still settles. All who write through one
transport share the turns, so that nothing has to be handed around.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from provisioner.ports import SwitchTransport

_turns: WeakKeyDictionary[SwitchTransport, dict[str, asyncio.Lock]] = WeakKeyDictionary()


def turn(transport: SwitchTransport, switch: str) -> asyncio.Lock:
    """The lock of one switch; to be held from the look that decides to the proof that ends it."""
    return _turns.setdefault(transport, {}).setdefault(switch, asyncio.Lock())
