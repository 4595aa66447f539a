"""Options that name a site's fabrics: the address plan, and UFM where there is InfiniBand."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from provisioner.adapters.ufm import UfmAddress
from provisioner.cli.options.checked_options import check_pin, check_url
from provisioner.daemon.data import read_text
from provisioner.daemon.tenants import FabricAccess
from provisioner.model.input_error import InputError
from provisioner.planning.places import address_plan
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Secret
from provisioner.settings import Settings

UFM_SECRET = "PROVISIONER_UFM_SECRET"  # noqa: S105 (the name of the variable)

PlanFile = Annotated[Path | None, typer.Option("--plan", help="The site's address plan.")]
UfmUrl = Annotated[str, typer.Option("--ufm", help="Address of UFM, for InfiniBand: https://HOST.")]
UfmUser = Annotated[str, typer.Option(help=f"User at UFM; without it {UFM_SECRET} is a token.")]
UfmPin = Annotated[str, typer.Option(help="SHA-256 of UFM's certificate.")]
Limited = Annotated[
    bool, typer.Option(help="Confirm that the default InfiniBand partition has limited members.")
]


def build_fabric_access(
    plan: Path | None,
    settings: Settings,
    ca_file: Path | None,
    ufm: tuple[str, str, str] = ("", "", ""),
    default_limited: bool = False,
) -> FabricAccess:
    """Return the access that the options describe; `ufm`: address, user, pin. Raises InputError."""
    url, user, pin = ufm
    chosen = AddressPlan() if plan is None else address_plan.parse(str(plan), read_text(plan))
    access = FabricAccess(chosen, settings, ca_file)
    if not url:
        if settings.isolation == "infiniband":
            problem = "partitions isolate here, and no UFM is named"
            raise InputError("--ufm", "isolation", problem, "Name it: --ufm https://HOST.")
        return access
    if not os.environ.get(UFM_SECRET):
        remedy = f"Run: export {UFM_SECRET}=..."
        raise InputError("--ufm", UFM_SECRET, "it is not set or empty", remedy)
    secret = Secret(os.environ[UFM_SECRET])
    pinned = check_pin(pin, insecure=False)
    address = UfmAddress(check_url("--ufm", url), user, secret, pinned)
    return replace(access, ufm=address, default_limited=default_limited)
