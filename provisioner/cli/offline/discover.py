"""`provisioner discover`: the leases of DHCP servers beside the expected-hardware list."""

from __future__ import annotations

import ipaddress
import re
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.adapters.kea_socket import read_socket
from provisioner.cli.offline.management_profile import LEASE_SCRIPT, profile
from provisioner.cli.options.showing import JsonOption, open_console
from provisioner.daemon.data import read_expected, read_text
from provisioner.model.input_error import InputError
from provisioner.model.integrations.dhcp_lease import LeaseComparison, Standing
from provisioner.planning.intake.dhcp_leases import SIZE_MAX, read_leases
from provisioner.planning.intake.lease_comparison import (
    Network,
    compare_leases,
    select_bmcs,
)

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
