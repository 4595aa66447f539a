"""One writer for each switch: tenants' revisions and moves of ports take turns on a leaf.

Two revisions that overlap are each applied on what was there when it was made; the later one may
then be refused, or be read as done while the earlier one still settles. All who write in one
process share the turns: what the API asks for, and the moves of the daemon.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

Turns = dict[str, asyncio.Lock]
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turn(switch: str) -> asyncio.Lock:
    """The lock of one switch; to be held from the look that decides to the proof that ends it."""
    return _turns.setdefault(asyncio.get_running_loop(), {}).setdefault(switch, asyncio.Lock())
