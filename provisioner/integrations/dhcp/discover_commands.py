"""`provisioner discover`: the leases of DHCP servers beside the expected-hardware list."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, open_console
from provisioner.daemon.data import read_expected
from provisioner.integrations.dhcp.deciding.dhcp_lease import (
    LeaseComparison,
    ManagementNetwork,
    ProfileFile,
    Standing,
)
from provisioner.integrations.dhcp.deciding.dhcp_leases import SIZE_MAX, read_leases
from provisioner.integrations.dhcp.deciding.lease_comparison import (
    Network,
    compare_leases,
    select_bmcs,
)
from provisioner.integrations.dhcp.deciding.management_network import (
    CUMULUS_SCRIPT,
    DNSMASQ_FILE,
    KEA_FILE,
    SONIC_DATA,
    SONIC_SCRIPT,
    Wishes,
    lay_out_network,
    write_cumulus_script,
    write_dnsmasq,
    write_kea,
    write_sonic_data,
    write_sonic_script,
    write_steps,
)
from provisioner.integrations.dhcp.kea_socket import read_socket
from provisioner.model.input_error import InputError
from provisioner.runtime.shipped import read_text

# ------------------------------------------------------------------------------
# `provisioner discover profile`: DHCP and first scripts for an empty management network.
#
# A file of configuration is shown to the server's own program before it is written, where that is
# installed. Files are written into a new folder, or one without these names: nothing is replaced.


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


FILES_MAX = 64
_PREFIX = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){2}")
AGREES = (None, Standing.LISTED, Standing.BY_ADDRESS)

app = typer.Typer(help="Discovery: BMCs in the leases of DHCP servers; nothing is changed.")


@app.command()
def leases(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Lease files of Kea (CSV), dnsmasq or ISC dhcpd, or notes of the lease script; "
            "the oldest first."
        ),
    ] = None,
    kea_socket: Annotated[
        list[Path] | None,
        typer.Option("--kea-socket", help="Control socket of kea-dhcp4 on this machine."),
    ] = None,
    expected: Annotated[
        Path | None, typer.Option("--file", help="Expected-hardware list to compare with.")
    ] = None,
    subnet: Annotated[
        list[str] | None,
        typer.Option("--subnet", help="Management network (CIDR); leases elsewhere are dropped."),
    ] = None,
    mac_prefix: Annotated[
        list[str] | None,
        typer.Option("--mac-prefix", help="MAC prefix of BMCs of this site, such as 5c:25:73."),
    ] = None,
    bmcs_only: Annotated[
        bool,
        typer.Option(
            "--bmcs",
            help="Leave out leases that are not listed, and that neither vendor class nor MAC "
            "prefix show as BMCs.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the leases in force and the list's hosts without one. No device is asked.

    Exit code 1 if leases and list differ.

    Example: provisioner discover leases /var/lib/kea/kea-leases4.csv --file expected.yaml
    """
    sources = [*(files or []), *(kea_socket or [])]
    if not sources:
        problem = "no source of leases is named"
        raise InputError("FILE", "", problem, "Name a lease file, or --kea-socket.")
    if len(sources) > FILES_MAX:
        problem = f"more than {FILES_MAX} files"
        raise InputError("FILE", "", problem, f"Name at most {FILES_MAX} files.")
    networks = [_parse_network(text) for text in subnet or []]
    prefixes = [_parse_prefix(text) for text in mac_prefix or []]
    hardware = None if expected is None else read_expected(expected)
    read = [read_leases(str(path), read_text(path, SIZE_MAX)) for path in files or []]
    read += [read_socket(path) for path in kea_socket or []]
    result = compare_leases(read, hardware, networks, time.time(), prefixes)
    if bmcs_only:
        result = select_bmcs(result)
    if as_json:
        typer.echo(result.model_dump_json())
    else:
        _show(result)
    agrees = all(row.standing in AGREES for row in result.candidates) and not result.missing
    raise typer.Exit(0 if agrees else 1)


app.command()(profile)


def _parse_network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        problem = "this is no network"
        raise InputError("--subnet", text, problem, "Write it like 10.0.0.0/24.") from None


def _parse_prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        problem = "this is no MAC prefix"
        raise InputError("--mac-prefix", text[:40], problem, "Write it like 5c:25:73.")
    return text.lower()


@app.command()
def script() -> None:
    """Print the script that notes the leases of dnsmasq, for its option `dhcp-script`.

    Example: provisioner discover script > /usr/local/sbin/note-lease
    """
    typer.echo(LEASE_SCRIPT.read_text(encoding="utf-8"), nl=False)


def _show(result: LeaseComparison) -> None:
    console = open_console()
    table = Table("address", "MAC", "device", "host name", "lease ends", "entry", "standing")
    for row in result.candidates:
        device = ", ".join(filter(None, (row.hint, row.vendor_class, row.relay)))
        standing = ": ".join(filter(None, (row.standing or "", row.detail)))
        others = f" (also {', '.join(row.other_addresses)})" if row.other_addresses else ""
        cells = (row.address + others, row.mac, device, row.hostname, row.lease_ends, row.entry)
        table.add_row(*map(Text, cells), Text(" ".join(filter(None, (standing, row.remedy)))))
    if result.candidates:
        console.print(table)
    for entry in result.missing:
        console.print(f"{entry.entry}: {entry.detail}. {entry.remedy}")
    for note in result.notes:
        console.print(f"note: {note}")
    console.print(
        f"{len(result.candidates)} leases in force, {len(result.missing)} listed hosts without one"
    )
