"""The first scripts of new switches: names, and the door that the daemon comes through. Pure.

They are fetched without a login by whatever stands on the management network, so that they hold no
password. A switch with Cumulus Linux keeps its factory password until its intake, when the daemon
changes it; one with SONiC gets the daemon's public key. Both take their name by their address.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable

from provisioner.model.integrations.management_profile import ManagementNetwork, SwitchName
from provisioner.planning.intake.dhcp_profile import SONIC_SCRIPT

MARKER = "CUMULUS-AUTOPROVISIONING"  # without it Cumulus Linux does not run a script
CUMULUS = "cumulus"
SONIC = "sonic"
_NAMES = """name_of() {{
  case "$1" in
{cases}
  *) ;;
  esac
}}

address=$(ip -4 -o address show dev eth0 | awk '{{print $4}}' | cut -d/ -f1 | head -n 1)
name=$(name_of "$address")
"""
_CUMULUS = """#!/bin/bash
# {marker}
# Written by `provisioner discover profile`: the first script of a switch with Cumulus Linux.
# It has no password: the daemon changes the factory one at the switch's intake.
exec >>/var/log/autoprovision 2>&1
set -eu

{names}
echo "$(date +%FT%T) first script at $address: name ${{name:-not on the list}}"
nv set system api state enabled
if [ -n "$name" ]; then
  nv set system hostname "$name"
fi
nv config apply -y
nv config save
exit 0
"""
_SONIC = """#!/bin/bash
# Written by `provisioner discover profile`: the first script of a switch with SONiC (ztp.json).
# It has no password: the daemon comes with the key whose public half is here.
set -eu

{names}
user={user}
key={key}
id -u "$user" >/dev/null 2>&1 || useradd -m -s /bin/bash "$user"
home=$(getent passwd "$user" | cut -d: -f6)
install -d -m 0700 -o "$user" -g "$user" "$home/.ssh"
printf '%s\\n' "$key" >"$home/.ssh/authorized_keys"
chown "$user:$user" "$home/.ssh/authorized_keys"
chmod 0600 "$home/.ssh/authorized_keys"
printf '%s ALL=(ALL) NOPASSWD:ALL\\n' "$user" >"/etc/sudoers.d/$user"
chmod 0440 "/etc/sudoers.d/$user"
if [ -n "$name" ]; then
  config hostname "$name"
fi
config save -y
exit 0
"""


def write_cumulus_script(site: ManagementNetwork) -> str:
    """Return the first script of switches with Cumulus Linux."""
    return _CUMULUS.format(marker=MARKER, names=_write_names(site.switches, CUMULUS))


def write_sonic_data(site: ManagementNetwork) -> str:
    """Return the ZTP data of switches with SONiC: one section with a script of its own."""
    section = {
        "plugin": {"url": f"{site.url}/{SONIC_SCRIPT}"},
        "halt-on-failure": True,
    }
    return json.dumps({"ztp": {"01-provisioner-login": section}}, indent=2) + "\n"


def write_sonic_script(site: ManagementNetwork) -> str:
    """Return the script that the ZTP data name."""
    return _SONIC.format(
        names=_write_names(site.switches, SONIC),
        user=shlex.quote(site.ssh_user),
        key=shlex.quote(site.ssh_key),
    )


def _write_names(switches: Iterable[SwitchName], system: str) -> str:
    """Return the shell function that knows the names of one system's switches by address."""
    cases = "\n".join(
        f"  {shlex.quote(s.address)}) echo {shlex.quote(s.name)} ;;"
        for s in switches
        if s.os == system
    )
    return _NAMES.format(cases=cases or "  '') ;;").rstrip("\n")
