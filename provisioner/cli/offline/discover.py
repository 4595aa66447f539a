"""`provisioner discover leases`: the leases of DHCP servers beside the expected-hardware list."""

from __future__ import annotations

import ipaddress
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.showing import JsonOption, open_console
from provisioner.daemon.data import read_expected, read_text
from provisioner.model.input_error import InputError
from provisioner.model.integrations.dhcp_lease import LeaseComparison, Standing
from provisioner.planning.intake.dhcp_leases import SIZE_MAX, read_leases
from provisioner.planning.intake.lease_comparison import Network, compare_leases

FILES_MAX = 64
AGREES = (None, Standing.LISTED, Standing.BY_ADDRESS)

app = typer.Typer(help="Discovery: BMCs in the lease files of DHCP servers; nothing is changed.")


@app.command()
def leases(
    files: Annotated[
        list[Path],
        typer.Argument(help="Lease files of Kea (CSV), dnsmasq or ISC dhcpd, the oldest first."),
    ],
    expected: Annotated[
        Path | None, typer.Option("--file", help="Expected-hardware list to compare with.")
    ] = None,
    subnet: Annotated[
        list[str] | None,
        typer.Option("--subnet", help="Management network (CIDR); leases elsewhere are dropped."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the leases in force and the list's hosts without one. Nothing is sent or stored.

    Exit code 1 if leases and list differ.

    Example: provisioner discover leases /var/lib/kea/kea-leases4.csv --file expected.yaml
    """
    if len(files) > FILES_MAX:
        problem = f"more than {FILES_MAX} files"
        raise InputError("FILE", "", problem, f"Name at most {FILES_MAX} files.")
    networks = [_parse_network(text) for text in subnet or []]
    hardware = None if expected is None else read_expected(expected)
    read = [read_leases(str(path), read_text(path, SIZE_MAX)) for path in files]
    result = compare_leases(read, hardware, networks, time.time())
    if as_json:
        typer.echo(result.model_dump_json())
    else:
        _show(result)
    agrees = all(row.standing in AGREES for row in result.candidates) and not result.missing
    raise typer.Exit(0 if agrees else 1)


def _parse_network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        problem = "this is no network"
        raise InputError("--subnet", text, problem, "Write it like 10.0.0.0/24.") from None


def _show(result: LeaseComparison) -> None:
    console = open_console()
    table = Table("address", "MAC", "device", "host name", "lease ends", "entry", "standing")
    for row in result.candidates:
        device = ", ".join(filter(None, (row.hint, row.vendor_class)))
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
