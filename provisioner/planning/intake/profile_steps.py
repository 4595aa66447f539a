"""The steps that a person takes with a profile for an empty management network. Pure."""

from __future__ import annotations

from provisioner.model.integrations.management_profile import ManagementNetwork
from provisioner.planning.intake.dhcp_profile import DNSMASQ_FILE, KEA_FILE, NOTES, SOCKET

_KEA = f"""    cp {KEA_FILE} /etc/kea/kea-dhcp4.conf
    systemctl restart kea-dhcp4-server"""
_DNSMASQ = f"""    install -m 0755 note-lease /usr/local/sbin/note-lease
    install -d -o dnsmasq {NOTES}
    cp {DNSMASQ_FILE} /etc/dnsmasq.d/management.conf
    systemctl restart dnsmasq"""


def write_steps(server: str, site: ManagementNetwork) -> str:
    """Return the steps as Markdown."""
    install = _KEA if server == "kea" else _DNSMASQ
    source = f"--kea-socket {SOCKET}" if server == "kea" else f"{NOTES}/notes"
    serve = (
        f"2. Serve the folder `www` at {site.url}, without a login. It holds no password. New "
        "switches run its scripts as root: nothing else may answer at that address."
    )
    if not site.switches:
        serve = "2. The list has no switch in this network: there is nothing to serve."
    lines = [
        f"# {site.network}: DHCP and first scripts",
        "",
        "Only for a network that is empty but for new hardware.",
        "",
        f"1. See that no other DHCP server answers on {site.interface}.",
        serve,
        f"3. On the server, which has {site.server} on {site.interface}:",
        "",
        install,
        "",
        "4. Power the racks, and compare what comes up with the list:",
        "",
        f"    provisioner discover leases {source} --file expected.yaml --subnet {site.network}",
        "",
        "5. Correct the list until the command ends with exit code 0. Then take the hardware in",
        "   (docs/intake.md), or adopt what serves already (docs/adopting.md).",
        "6. To end it, stop the server. Addresses that were given out end within the hour;",
        "   switches keep what their first script wrote.",
    ]
    return "\n".join(lines) + "\n"
