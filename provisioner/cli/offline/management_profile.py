"""`provisioner discover profile`: DHCP and first scripts for an empty management network.

A file of configuration is shown to the server's own program before it is written, where that is
installed. Files are written into a new folder, or one without these names: nothing is replaced.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from provisioner.daemon.data import read_expected, read_text
from provisioner.model.input_error import InputError
from provisioner.model.integrations.management_profile import ManagementNetwork, ProfileFile
from provisioner.planning.intake.dhcp_profile import (
    CUMULUS_SCRIPT,
    DNSMASQ_FILE,
    KEA_FILE,
    SONIC_DATA,
    SONIC_SCRIPT,
    write_dnsmasq,
    write_kea,
)
from provisioner.planning.intake.management_network import Wishes, lay_out_network
from provisioner.planning.intake.profile_steps import write_steps
from provisioner.planning.intake.ztp_scripts import (
    write_cumulus_script,
    write_sonic_data,
    write_sonic_script,
)

LEASE_SCRIPT = Path(__file__).with_name("lease_script.sh")
HOOKS = "/usr/lib/x86_64-linux-gnu/kea/hooks"
CHECK_S = 60.0
REFUSAL_MAX = 600  # characters
PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
EXECUTABLE = 0o755


class Server(StrEnum):
    """The DHCP server that a profile is for."""

    KEA = "kea"
    DNSMASQ = "dnsmasq"


def profile(
    server: Annotated[Server, typer.Argument(help="The DHCP server.")],
    expected: Annotated[Path, typer.Option("--file", help="Expected-hardware list.")],
    subnet: Annotated[str, typer.Option(help="The empty management network (CIDR, IPv4).")],
    address: Annotated[str, typer.Option(help="Address of the server in it.")],
    interface: Annotated[str, typer.Option(help="The server's interface there, such as eth1.")],
    out: Annotated[Path, typer.Option(help="Folder for the files.")],
    gateway: Annotated[str, typer.Option(help="Router of the network; none if not given.")] = "",
    pool: Annotated[
        str, typer.Option(help="Addresses for cards that are not listed: 10.0.1.100-10.0.1.200.")
    ] = "",
    url: Annotated[
        str,
        typer.Option(help="Where switches fetch their first scripts; http://ADDRESS if not given."),
    ] = "",
    ssh_user: Annotated[
        str, typer.Option(help="User of `serve --ssh-user`, for switches with SONiC.")
    ] = "provisioner",
    ssh_key: Annotated[
        Path | None,
        typer.Option(help="File with the PUBLIC half of `serve --ssh-key`, for such switches."),
    ] = None,
    hooks: Annotated[str, typer.Option(help="Folder of Kea's hook libraries.")] = HOOKS,
    write: Annotated[
        bool, typer.Option("--write", help="Write the files; without it they are only checked.")
    ] = False,
) -> None:
    """Write DHCP and first scripts for an empty management network, from the hardware list.

    Without --write nothing is written. No server is started, and no file is replaced.

    Example: provisioner discover profile kea --file expected.yaml --subnet 10.0.1.0/24
    --address 10.0.1.1 --interface eth1 --out profile
    """
    hardware = read_expected(expected)
    key = "" if ssh_key is None else read_text(ssh_key)
    wishes = Wishes(subnet, address, interface, gateway, pool, url, ssh_user, key)
    site = lay_out_network(hardware, wishes)
    files = list_files(server, site, hooks)
    verdict = check(server, files)
    for file in files:
        typer.echo(f"{out / file.path}: {len(file.text.encode())} bytes")
    typer.echo(verdict)
    for note in site.notes:
        typer.echo(f"note: {note}")
    if not write:
        typer.echo("Nothing was written: add --write.")
        return
    write_files(out, files)
    typer.echo(f"Written. {out / STEPS} has the next steps:\n")
    typer.echo(next(f.text for f in files if f.path == STEPS), nl=False)


STEPS = "STEPS.md"


def list_files(server: Server, site: ManagementNetwork, hooks: str) -> tuple[ProfileFile, ...]:
    """Return all files of a profile."""
    files = [ProfileFile(path=STEPS, text=write_steps(server.value, site))]
    if server is Server.KEA:
        files.append(ProfileFile(path=KEA_FILE, text=write_kea(site, hooks)))
    else:
        files.append(ProfileFile(path=DNSMASQ_FILE, text=write_dnsmasq(site)))
        script = LEASE_SCRIPT.read_text(encoding="utf-8")
        files.append(ProfileFile(path="note-lease", text=script, mode=EXECUTABLE))
    systems = {switch.os for switch in site.switches}
    if "cumulus" in systems:
        files.append(ProfileFile(path=f"www/{CUMULUS_SCRIPT}", text=write_cumulus_script(site)))
    if "sonic" in systems:
        if not site.ssh_key:
            problem = "the list has switches with SONiC, which the daemon logs in to by key"
            remedy = "Name the file with the public half of the daemon's key."
            raise InputError("--ssh-key", "", problem, remedy)
        files.append(ProfileFile(path=f"www/{SONIC_DATA}", text=write_sonic_data(site)))
        files.append(ProfileFile(path=f"www/{SONIC_SCRIPT}", text=write_sonic_script(site)))
    return tuple(files)


def check(server: Server, files: Sequence[ProfileFile]) -> str:
    """Return the verdict of the server's own program. Raises InputError if it refuses its file."""
    name = "kea-dhcp4" if server is Server.KEA else "dnsmasq"
    path = KEA_FILE if server is Server.KEA else DNSMASQ_FILE
    program = shutil.which(name, path=PLACES)
    if program is None:
        return f"{path} was not checked: {name} is not installed here."
    text = next(f.text for f in files if f.path == path)
    absent = ""
    with tempfile.TemporaryDirectory() as folder:
        if server is Server.KEA:
            text = _leave_out_interface(text)
            absent = " (its interface is looked up on the server, at its start)"
        place = Path(folder) / path
        place.write_text(text, encoding="utf-8")
        options = ["-t", str(place)] if server is Server.KEA else ["--test", f"-C{place}"]
        done = _run([program, *options], {"KEA_PIDFILE_DIR": folder, "KEA_LOCKFILE_DIR": folder})
    if done.returncode != 0:
        shown = "".join(c if c.isprintable() else " " for c in done.stdout[-REFUSAL_MAX:])
        raise InputError(path, "", f"{name} refuses it: {shown}", "Correct list and options.")
    return f"{path} was accepted by {name}{absent}."


def _leave_out_interface(text: str) -> str:
    """Return Kea's configuration without its interface, which this machine may not have."""
    settings = json.loads(text)
    settings["Dhcp4"]["interfaces-config"]["interfaces"] = []
    return json.dumps(settings)


def _run(command: Sequence[str], more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603  (an own file's name, no shell)
            command,
            env={**os.environ, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = f"it cannot be run ({error})"
        raise InputError(command[0], "", problem, "Check the program by hand.") from None


def write_files(out: Path, files: Sequence[ProfileFile]) -> None:
    """Write the files, all or none that were there before. Raises InputError, never OSError."""
    present = [file.path for file in files if os.path.lexists(out / file.path)]
    if present:
        problem = f"it has {', '.join(present)} already"
        raise InputError(str(out), "", problem, "Name a new folder: nothing is replaced.")
    try:
        for file in files:
            place = out / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("x", encoding="utf-8") as opened:
                opened.write(file.text)
            place.chmod(file.mode)
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError(str(out), "", problem, "Name a folder that you may write to.") from None
