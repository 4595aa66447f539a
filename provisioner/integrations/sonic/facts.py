"""What the core must know of SONiC before it opens a switch."""

from provisioner.model.tenant_network import NetworkLimits
from provisioner.ports.switch import SwitchFacts

FACTS = SwitchFacts(
    name="sonic",
    scheme="ssh",
    networks=NetworkLimits(vrf_name_max=12),
    stored_login=False,
    title="SONiC",
    factory_hostname="sonic",  # source: sonic-buildimage, build_debian.sh
)
