"""`provisioner intake`: find BMCs, recognise them on the expected-hardware list, take nodes in."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from provisioner.adapters.redfish.discovery import Network, Probe, probe_all, scan, ssdp
from provisioner.adapters.redfish.governor import LoginGovernor
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.cli.options.checked_options import checked_network, checked_url
from provisioner.cli.options.confirmation import ActorOption, YesOption, confirm_change, name_actor
from provisioner.cli.options.data_options import console
from provisioner.daemon.data import Data, open_data, read_expected, read_secrets
from provisioner.execution.observe.intake import Taken, complete, find, take_in
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Gap
from provisioner.planning.intake.pairing import name_causes
from provisioner.planning.lifecycle import operator_requests as requests
from provisioner.ports import BmcTransport
from provisioner.runtime.site_clock import site_clock
from provisioner.store.rows.request_writes import write_node_request


def intake(
    file: Annotated[Path, typer.Option("--file", help="Expected-hardware list (YAML).")],
    data: Annotated[Path, typer.Option(help="Data directory of the daemon.")] = Path("var"),
    bmc: Annotated[list[str] | None, typer.Option(help="Address of one BMC; repeatable.")] = None,
    cidr: Annotated[list[str] | None, typer.Option("--range", help="Network to scan.")] = None,
    port: Annotated[int, typer.Option(help="Port that a scan asks.", min=1, max=65535)] = 443,
    use_ssdp: Annotated[bool, typer.Option("--ssdp", help="Ask by multicast too.")] = False,
    dry_run: Annotated[
        bool, typer.Option(help="Show what would be taken in; change no BMC, store no node.")
    ] = False,
    take: Annotated[
        list[str] | None,
        typer.Option(
            help="Node whose ports may be moved out of whichever network they stand in, and whose "
            "disks are erased; repeatable."
        ),
    ] = None,
    by: ActorOption = "",
    yes: YesOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Take racked nodes in: they are stored as `discovered`, and the daemon goes on from there.

    Each address is probed without login. Where the expected-hardware list gives a factory
    credential for the vendor, one login reads the serial. Only a BMC that shows nothing before its
    factory password is changed (BlueField) gets a unique one; --dry-run leaves that too.
    The daemon reads a node's ports before it moves one: a node with a port in a network that it was
    not put into by the daemon waits in quarantine, until the port is moved or --take names it.
    Exit code 1: something on the list could not be taken in; each is named with its remedy.
    """
    expected = read_expected(file)
    secrets = read_secrets(expected, os.environ)
    networks = [checked_network(n) for n in cidr or []]
    listed = [n.bmc.url for n in expected.nodes if n.bmc.url]
    urls = [*(checked_url("--bmc", url) for url in bmc or []), *listed]
    progress_on, gaps = Console(stderr=True), list[Gap]()
    taking = _confirm_taking(take, yes=yes, dry_run=dry_run, as_json=as_json)

    async def run() -> tuple[Taken, tuple[Blocker, ...]]:
        clock = site_clock(data)
        transport = RedfishTransport(governor=LoginGovernor(memory=data / "failed-logins"))
        try:
            async with open_data(data, clock.now()) as opened:
                places = (urls, networks, port)
                probes = await _probes(transport, places, use_ssdp, progress_on, gaps.append)
                with Progress(console=progress_on, transient=True) as bar:
                    task = bar.add_task("reading serials", total=None)
                    assembly, found, silent = await find(
                        transport,
                        opened.store,
                        None if dry_run else opened.vault,
                        expected,
                        secrets,
                        probes,
                        clock.now(),
                        lambda done, all_: bar.update(task, completed=done, total=all_),
                    )
                if dry_run:
                    return Taken(complete(expected, assembly), (), assembly.blockers), silent
                lists, now = (expected, secrets), clock.now()
                taken = await take_in(opened.store, opened.vault, *lists, assembly, found, now)
                await _take(opened, taking, name_actor(by))
                return taken, silent
        finally:
            await transport.close()

    taken, silent = asyncio.run(run())
    rows = name_causes(expected, taken.blockers, (*silent, *map(_unanswered, gaps)))
    _show(taken, rows, as_json=as_json, dry_run=dry_run)
    raise typer.Exit(1 if taken.blockers else 0)


def _confirm_taking(
    names: list[str] | None, *, yes: bool, dry_run: bool, as_json: bool
) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(names or ()))
    lines = [
        f"{name}: its ports are moved into the maintenance network from whichever network they "
        "stand in, which cuts off whoever it serves; then its disks are erased."
        for name in found
    ]
    if dry_run:  # the rest of the dry run follows
        for line in lines:
            typer.echo(line, err=as_json)
    elif found:
        confirm_change(lines, yes=yes, dry_run=False, as_json=as_json)
    return found


async def _take(opened: Data, names: tuple[str, ...], by: str) -> None:
    """Give nodes' ports to the daemon, by a person's word."""
    now = opened.clock.now()
    for name in names:
        node = await opened.store.node(name)
        if node is None:
            problem = "no node of this name was taken in"
            raise InputError("--take", name, problem, "Look at what keeps it from intake first.")
        changed = requests.take(node, now)
        if isinstance(changed, str):
            raise InputError("--take", name, changed, "Leave it out.")
        detail = {"request": "take", "by": by}
        await opened.store.write(partial(write_node_request, node=changed, detail=detail, now=now))


async def _probes(
    transport: BmcTransport,
    places: tuple[list[str], list[Network], int],
    use_ssdp: bool,
    progress_on: Console,
    gap_seen: Callable[[Gap], None],
) -> list[Probe]:
    """Everything that answers, of URLs, networks and the port that is asked in them.

    `gap_seen` hears of named addresses that do not answer.
    """
    urls, networks, port = places
    found = {p.url: p for p in await probe_all(transport, urls, gap_seen=gap_seen)}
    with Progress(console=progress_on, transient=True) as bar:
        for network in networks:
            task = bar.add_task(f"scanning {network}", total=network.num_addresses)
            update = partial(_advance, bar, task)
            for probe in await scan(transport, network, port, update):
                found.setdefault(probe.url, probe)
    if use_ssdp:
        for probe in await probe_all(transport, await ssdp()):
            found.setdefault(probe.url, probe)
    return list(found.values())


def _unanswered(gap: Gap) -> Blocker:
    """A named address behind which no Redfish service answered."""
    unblock = f"Check address, cable and power; look at it with `provisioner inspect {gap.source}`."
    return Blocker(reason=gap.reason, subject=gap.source, detail=gap.detail, unblock=unblock)


def _advance(bar: Progress, task: TaskID, done: int, _all: int) -> None:
    bar.update(task, completed=done)


def _show(taken: Taken, blockers: tuple[Blocker, ...], *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        document = {
            "taken_in": [n.id for n in taken.new],
            "known": list(taken.known),
            "blockers": [b.model_dump(mode="json") for b in blockers],
            "dry_run": dry_run,
        }
        typer.echo(json.dumps(document))
        return
    shown = console()
    verb = "would be taken in" if dry_run else "taken in"
    shown.print(f"{len(taken.new)} nodes {verb}, {len(taken.known)} known before")
    if blockers:
        table = Table("what", "why", "what would unblock it")
        for blocker in blockers:
            why = f"{blocker.reason}: {blocker.detail}"
            table.add_row(*(Text(word) for word in (blocker.subject, why, blocker.unblock)))
        shown.print(table)
