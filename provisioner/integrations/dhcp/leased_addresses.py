"""The addresses that lease files have in force, for `init --leases`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from provisioner.integrations.dhcp.deciding.dhcp_leases import SIZE_MAX, read_leases
from provisioner.integrations.dhcp.deciding.lease_comparison import compare_leases
from provisioner.runtime.shipped import read_text


def read_leased(files: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Return MAC and address of each lease in force. Raises InputError."""
    read = [read_leases(str(path), read_text(path, SIZE_MAX)) for path in files]
    found = compare_leases(read, None, (), time.time()).candidates if read else ()
    return tuple((one.mac, one.address) for one in found)
