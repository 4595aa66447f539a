"""Write a management network as configuration of Kea or dnsmasq. Pure.

New switches are recognized by their own words: Cumulus Linux sends the vendor class
`cumulus-linux x86_64` and takes its first script from option 239 (its user guide, Zero Touch
Provisioning); SONiC sends the user class `SONiC-ZTP` (sonic-buildimage, dhclient.conf.j2) and takes
the URL of its ZTP data from option 67 (sonic-ztp). Neither is sent to any other device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provisioner.model.integrations.management_profile import ManagementNetwork

KEA_FILE = "kea-dhcp4.conf"
DNSMASQ_FILE = "dnsmasq.conf"
CUMULUS_SCRIPT = "cumulus-ztp.sh"
SONIC_DATA = "ztp.json"
SONIC_SCRIPT = "sonic-login.sh"
CUMULUS_CLASS = "cumulus-linux"
SONIC_CLASS = "SONiC-ZTP"
PROVISION_URL = 239
LEASE_S = 3600
RETRIES = 100_000
RETRY_MS = 5000
SOCKET = "/run/kea/kea4-ctrl-socket"  # as in Debian's own file, where AppArmor allows it
LEASES = "/var/lib/kea/kea-leases4.csv"
NOTES = "/var/lib/provisioner-leases"


def write_kea(site: ManagementNetwork, hooks: str) -> str:
    """Return the file of kea-dhcp4; `hooks` is the folder of its hook libraries."""
    options = [{"name": "routers", "data": site.gateway}] if site.gateway else []
    subnet = {
        "id": 1,
        "subnet": site.network,
        "pools": [{"pool": f"{first} - {last}"} for first, last in site.pools],
        "option-data": options,
        "reservations-in-subnet": True,
        "reservations-out-of-pool": True,
        "reservations": [
            {"hw-address": r.mac, "ip-address": r.address, "hostname": r.name}
            for r in site.reservations
        ],
    }
    settings = {
        "interfaces-config": {
            "interfaces": [site.interface],
            # at the server's start the cable may have no link yet
            "service-sockets-max-retries": RETRIES,
            "service-sockets-retry-wait-time": RETRY_MS,
        },
        "control-socket": {"socket-type": "unix", "socket-name": SOCKET},
        "hooks-libraries": [{"library": f"{hooks}/libdhcp_lease_cmds.so"}],
        "lease-database": {"type": "memfile", "name": LEASES, "lfc-interval": LEASE_S},
        "valid-lifetime": LEASE_S,
        "option-def": [{"name": "provision-url", "code": PROVISION_URL, "type": "string"}],
        "client-classes": _write_classes(site),
        "subnet4": [subnet],
    }
    return json.dumps({"Dhcp4": settings}, indent=2) + "\n"


def _write_classes(site: ManagementNetwork) -> list[Mapping[str, Any]]:
    length = len(CUMULUS_CLASS)
    return [
        {
            "name": "cumulus",
            "test": f"substring(option[60].hex,0,{length}) == '{CUMULUS_CLASS}'",
            "option-data": [{"name": "provision-url", "data": f"{site.url}/{CUMULUS_SCRIPT}"}],
        },
        {
            "name": "sonic",
            "test": f"substring(option[77].hex,0,{len(SONIC_CLASS)}) == '{SONIC_CLASS}'",
            "option-data": [{"name": "boot-file-name", "data": f"{site.url}/{SONIC_DATA}"}],
        },
    ]


def write_dnsmasq(site: ManagementNetwork) -> str:
    """Return the file of dnsmasq: DHCP alone, no names."""
    netmask = site.network.partition("/")[2]
    mask = _write_mask(int(netmask))
    lines = [
        "# DHCP of an empty management network, by `provisioner discover profile`",
        "port=0",
        f"interface={site.interface}",
        "bind-interfaces",
        "dhcp-authoritative",
        "dhcp-leasefile=/var/lib/misc/dnsmasq.leases",
        "dhcp-script=/usr/local/sbin/note-lease",
        "dhcp-scriptuser=dnsmasq",
        *(f"dhcp-range={first},{last},{mask},{LEASE_S}" for first, last in site.pools),
        f"dhcp-option=option:router{f',{site.gateway}' if site.gateway else ''}",
        "dhcp-option=option:dns-server",
        f"dhcp-vendorclass=set:cumulus,{CUMULUS_CLASS}",
        f"dhcp-option=tag:cumulus,{PROVISION_URL},{site.url}/{CUMULUS_SCRIPT}",
        f"dhcp-userclass=set:sonic,{SONIC_CLASS}",
        f"dhcp-option=tag:sonic,option:bootfile-name,{site.url}/{SONIC_DATA}",
        *(f"dhcp-host={r.mac},{r.address},{r.name}" for r in site.reservations),
    ]
    return "\n".join(lines) + "\n"


def _write_mask(bits: int) -> str:
    number = (0xFFFFFFFF << (32 - bits)) & 0xFFFFFFFF
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
