"""The closed list of commands that only read: a daemon that observes runs no other. Pure.

Commands of hosts are compared as whole lines with those that the readers declare. Commands of
switches carry names of VRFs, VNIs and ports, and are compared with patterns that leave no room for
a quote, a substitution or a second command.
"""

from __future__ import annotations

import re

from provisioner.checks import lldp
from provisioner.planning.intake import drive_firmware, host_look, host_tools, inband_facts

_LINES = frozenset(
    (
        *(line for _, line, _ in inband_facts.COMMANDS),
        host_tools.LOOK,
        drive_firmware.COMMAND[1],
        *(command.line for command in lldp.CHECK.commands),
    )
)
_WORD = r"[A-Za-z0-9][A-Za-z0-9._:/-]*"
# of SONiC's own tools and of FRR's shell; `show` commands of vtysh change nothing
_SWITCH = tuple(
    re.compile(pattern)
    for pattern in (
        r"show system-health summary",
        r"ip -j neigh show",
        r"show mac",
        r"ip -j -d addr show",
        rf"vtysh -c 'show {_WORD}(?: {_WORD}){{0,8}} json'",
        r"docker exec lldp lldpctl -f json",
        r"TSC no-stats",
        r"decode-syseeprom -s",
        rf"sonic-db-cli COUNTERS_DB HGETALL {_WORD}",
        r"sonic-cfggen -d --print-data",
        r"cat /etc/sonic/config_db\.json",
        r"sonic-installer list",
        (
            r"for k in \$\(sonic-db-cli STATE_DB KEYS 'ACL_\*_TABLE\|[A-Za-z0-9_-]+\*'\); do "
            r'echo "\$k \$\(sonic-db-cli STATE_DB HGET "\$k" status\)"; done; echo read'
        ),
    )
)


def is_reading_command(line: str) -> bool:
    """Return whether a line is on the list."""
    return (
        line in _LINES
        or host_look.is_look(line)
        or any(pattern.fullmatch(line) for pattern in _SWITCH)
    )
