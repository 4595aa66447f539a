"""The options of `provisioner serve`: their help, and how their files and directories are read."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.checked_options import check_ca, check_directory, check_pin, check_url
from provisioner.cli.options.matrix_files import Pinned, read_pinned
from provisioner.daemon.data import database_of, read_settings
from provisioner.daemon.tenants import FabricAccess
from provisioner.model.input_error import InputError
from provisioner.planning.places import address_plan
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Secret
from provisioner.ports.isolation import UfmAddress
from provisioner.runtime.shipped import find_shipped, read_text
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# Options that name a site's fabrics: the address plan, and UFM where there is InfiniBand.


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


PLAYBOOKS = Path("ansible/playbooks")  # default of --playbooks: here, or the installed ones

DataDirectory = Annotated[
    Path, typer.Option(help="Data directory; it is created if it does not exist.")
]
Database = Annotated[str, typer.Option(help="postgresql://USER@HOST/NAME, for several daemons.")]
Restored = Annotated[
    bool,
    typer.Option(
        "--restored", help="Write nothing to devices until `provisioner recovery finish`."
    ),
]
Matrices = Annotated[
    list[Path] | None, typer.Option(help="Matrix file, then overlays; repeatable.")
]
Artifacts = Annotated[
    Path, typer.Option(help="Directory of firmware files; the cache of --artifact-url.")
]
ArtifactHost = Annotated[
    str, typer.Option(help="Address of this machine from which BMCs and switches pull artifacts.")
]
ArtifactUrl = Annotated[
    str, typer.Option(help="http(s)://HOST[:PORT]/PATH that devices and daemon fetch from instead.")
]
ArtifactPort = Annotated[int, typer.Option(min=0, max=65535, help="Port for files; 0: a free one.")]
AgentPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Port for maintenance agents; 0: a free one.")
]
ApiPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port of the API; 0: a free one.")
]
AgentHost = Annotated[
    str, typer.Option(help="Address of this machine that maintenance agents call.")
]
AgentUrl = Annotated[str, typer.Option(help="URL that ramdisks use, if it is not host and port.")]
CaFile = Annotated[
    Path | None, typer.Option(help="File with the CAs to trust for devices' certificates.")
]
Thresholds = Annotated[
    Path | None, typer.Option(help="The site's own thresholds (docs/thresholds.md).")
]
EventsUrl = Annotated[str, typer.Option(help="https://ADDRESS:PORT to which devices push events.")]
AlertSources = Annotated[
    Path | None, typer.Option(help="File of sources that may push alerts (docs/watch.md).")
]
ChangeUntil = Annotated[
    str, typer.Option(help="Until then daemons with another version, matrix or settings may join.")
]
SettingsFile = Annotated[Path | None, typer.Option(help="Settings file (docs/settings.md).")]
Playbooks = Annotated[Path, typer.Option(help="Directory of playbooks.")]
SshUser = Annotated[str, typer.Option(help="User name on hosts.")]
SshKey = Annotated[Path | None, typer.Option(help="File with the private key for hosts.")]
KnownHosts = Annotated[Path | None, typer.Option(help="File with the host keys to trust.")]
Lab = Annotated[bool, typer.Option(help="Leave unknown pins alone instead of refusing them.")]
Observe = Annotated[
    bool,
    typer.Option("--observe", help="Read everything, and change no device (docs/adopting.md)."),
]
Simulator = Annotated[Path | None, typer.Option(help="Control socket of `provisioner sim serve`.")]


def read_files(
    settings: Path | None,
    matrix: list[Path] | None,
    api_port: int | None,
    kept: tuple[Path, str],
    *,
    lab: bool,
) -> tuple[Settings, Pinned, str]:
    """Read settings, matrix and database (`kept`: directory and --database). Raises InputError."""
    chosen = read_settings(settings, production=False if lab else None, api_port=api_port)
    return chosen, read_pinned(matrix or []), database_of(*kept)


def check_places(
    simulator: Path | None, playbooks: Path, artifacts: Path, ca_file: Path | None, *, observe: bool
) -> Path:
    """Check and return the playbooks' directory, so that a missing file is reported now.

    A daemon that observes serves no file to a device, and needs no directory of them.
    """
    playbooks = find_shipped("ansible/playbooks") if playbooks == PLAYBOOKS else playbooks
    check_ca("--ca-file", ca_file)
    if not observe:
        check_directory("--artifacts", artifacts)
    if simulator is None:
        check_directory("--playbooks", playbooks)
    elif not simulator.exists() or not stat.S_ISSOCK(simulator.stat().st_mode):
        remedy = "Start `provisioner sim serve --control FILE` first."
        raise InputError("--simulator", str(simulator), "there is no such socket", remedy)
    return playbooks
