"""The host's operating system as one image, a component like any other; the agent writes it.

Its version is the label that the matrix pins, read from the stamp file in the running system. A
system without our stamp is named after its os-release, so that it never equals a pin by chance.
"""

from __future__ import annotations

from provisioner.components.kind import ComponentKind
from provisioner.model.inventory import Activation
from provisioner.model.plan import Disruption

HOST_OS = "host.os"
DEPLOY = "deploy_image"
STAMP = "/etc/provisioner-release"
NOTHING = "none"  # version of a host whose disks were erased

KINDS = (
    ComponentKind(
        name=HOST_OS,
        title="operating system image",
        method=DEPLOY,
        activation=Activation.NONE,  # the method itself ends with a boot from the written disk
        disruption=Disruption.HOST,
        duration_s=1800,
    ),
)
