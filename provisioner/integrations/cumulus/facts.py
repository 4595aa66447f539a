"""What the core must know of Cumulus Linux before it opens a switch."""

from provisioner.model.tenant_network import NetworkLimits
from provisioner.ports.switch import SwitchFacts

FACTS = SwitchFacts(
    name="cumulus",
    scheme="https",
    networks=NetworkLimits(
        vrfs_max=255,  # source: Cumulus Linux guide, "VRF": tables 1001 to 1255
        tenant_networks=True,
    ),
    takes_tacacs_key=True,
    title="Cumulus Linux",
    port=8765,  # source: NVUE API guide, "Access the NVUE REST API"
    # source: Cumulus Linux quick start guide: user and host name of a new switch
    factory_user="cumulus",
    factory_hostname="cumulus",
)
