"""What the transport keeps of each BMC: its turns, its login, and what was learned of its ways."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from provisioner.ports import BmcAddress
from provisioner.redfish.exchange import READS_MAX
from provisioner.redfish.session import Login


@dataclass
class Line:
    """What is kept per BMC. The locks outlive a logout, so that there never are two writers."""

    reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_MAX))
    write: asyncio.Lock = field(default_factory=asyncio.Lock)
    basic: asyncio.Lock = field(default_factory=asyncio.Lock)
    login: Login | None = None
    login_address: BmcAddress | None = None
    used_s: float = 0.0  # when the login last worked, on the event loop's clock
    opening: asyncio.Task[Login] | None = None
    opening_for: BmcAddress | None = None
    coding: str = "identity"
    told: bool = False  # a warning about missing security was logged
    resets_kept: bool = False  # it broke a connection that was used again (HPE, facts T2)
