"""`provisioner init`: proposes the two files that only a site can give, from what it shows."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import Progress

from provisioner.adapters.redfish.discovery import (
    Network,
    Probe,
    find_listening,
    parse_network,
    probe_all,
    scan,
)
from provisioner.adapters.redfish.governor import LoginGovernor
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.matrix_files import MatrixOption, read_located_matrix
from provisioner.cli.options.tables import Table, open_console
from provisioner.daemon.data import read_expected, read_secrets
from provisioner.integrations.site_proposal.proposal import (
    SWITCH_VARIABLE,
    Missing,
    Proposal,
    ReleaseFit,
    Seen,
    check_pattern,
    draft_site,
    fit_release,
    name_variable,
    propose,
    suggest_release,
    write_list,
)
from provisioner.integrations.site_proposal.site_reading import read_bmcs, read_switches
from provisioner.model.expected import DEFAULT_OS, Expected
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.intake import expected_text
from provisioner.ports import Secret, SwitchAddress
from provisioner.quirks import ALL, UNKNOWN
from provisioner.runtime.integrations import read_leased
from provisioner.runtime.switch_systems import find_switch_systems, find_system, make_switches
from provisioner.runtime.wall_clock import WallClock

LIST = "expected.yaml"
OVERLAY = "site.yaml"
NODES = "nodes"  # folder of the inventories, as `matrix check --inventory` reads them
FAILED_LOGINS = "failed-logins"
LIMIT_S = 90.0
SYSTEMS = find_switch_systems()
LISTED = find_system(DEFAULT_OS).facts  # of switches whose address is no URL
FACTORY_HOSTNAMES = frozenset(s.facts.factory_hostname for s in SYSTEMS) - {""}
BMCS_MAX = 4096
Done = Callable[[int, int], None]


@dataclass(frozen=True)
class _Search:
    """Where to look, with which logins."""

    networks: tuple[Network, ...]
    port: int
    urls: tuple[str, ...]
    leased: tuple[tuple[str, str], ...]  # MAC and address
    switches: tuple[str, ...]
    switch_port: int
    switch_user: str
    factory: Mapping[str, tuple[str, Secret]]
    limit_s: float


Ranges = Annotated[
    list[str] | None,
    typer.Option("--range", help="Look for BMCs in this network (CIDR); repeatable."),
]
Leases = Annotated[
    list[Path] | None,
    typer.Option(
        "--leases", help="Lease file of Kea, dnsmasq or ISC dhcpd, as for `discover leases`."
    ),
]
Bmcs = Annotated[list[str] | None, typer.Option("--bmc", help="Address of one BMC; repeatable.")]
SwitchAddresses = Annotated[
    list[str] | None,
    typer.Option(
        help="Address of a switch, or a network of nothing but switches (CIDR): the switches' "
        "password is tried at each that answers. Repeatable."
    ),
]
SwitchUser = Annotated[str, typer.Option(help="User of the switches' API.")]
Port = Annotated[int, typer.Option(help="Port of the BMCs in --range and --leases.")]
SwitchPort = Annotated[int, typer.Option(help="Port of the switches' API.")]
Names = Annotated[
    str,
    typer.Option(
        help="Pattern of the hosts' names, by the order of their addresses, such as "
        "su{unit}-n{index:02d}; by default their names by LLDP."
    ),
]
SiteName = Annotated[str, typer.Option(help="Name of the site.")]
ReleaseName = Annotated[
    str, typer.Option(help="Target release; by default the one that most parts run already.")
]
Earlier = Annotated[
    Path | None,
    typer.Option(
        "--file", help="Earlier list: its entries, places and logins are kept in the new one."
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for the files.")]
Limit = Annotated[
    float, typer.Option(min=1.0, max=3600.0, help="Seconds that the reading of one BMC may take.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Write nothing: show what would be written.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the files of an earlier run.")]


def init(
    ranges: Ranges = None,
    leases: Leases = None,
    bmcs: Bmcs = None,
    switches: SwitchAddresses = None,
    switch_user: SwitchUser = LISTED.factory_user,
    port: Port = 443,
    switch_port: SwitchPort = LISTED.port,
    names: Names = "",
    site: SiteName = "site",
    release: ReleaseName = "",
    known: Earlier = None,
    matrix: MatrixOption = None,
    out: Out = Path(),
    limit: Limit = LIMIT_S,
    dry_run: DryRun = False,
    force: Force = False,
    as_json: JsonOption = False,
) -> None:
    """Propose a site's hardware list and overlay from its BMCs and switches; nothing is changed.

    Passwords come from the environment: FACTORY_SUPERMICRO, FACTORY_NVIDIA_OPENBMC and so on, by
    vendor, and SWITCH_PASSWORD. Each is tried once at each device. Read the files, correct the
    names, then go on with `doctor` and `rehearse`. Exit code 0: written, and nothing is missing
    that stops an intake; 1: written, and a device was not read; 2: the input is wrong.

    Example: provisioner init --range 10.0.0.0/24 --switches 10.0.1.0/28
    """
    pinned, located = read_located_matrix(matrix or [])
    _check(names, release, pinned)
    earlier = read_expected(known) if known else None
    _refuse_present(out, force=force or dry_run)
    search = _Search(
        networks=tuple(parse_network(n) for n in ranges or ()),
        port=port,
        urls=tuple(bmcs or ()),
        leased=_read_leases(leases or ()),
        switches=tuple(switches or ()),
        switch_port=switch_port,
        switch_user=switch_user,
        factory=_read_factory(earlier),
        limit_s=limit,
    )
    _check_search(search)
    seen = asyncio.run(_read(search, None if dry_run else out / FAILED_LOGINS))
    if not seen.vendor_of and not seen.switches:
        problem = "no BMC answers there"
        raise InputError("init", "", problem, "Check cables, addresses and --port.")
    proposal = propose(seen, site, release, names, earlier)
    inventories = proposal.name_inventories(seen.hosts)
    fit = (
        fit_release(pinned, release, inventories)
        if release
        else suggest_release(pinned, inventories)
    )
    proposal = proposal.name_release(fit.release)
    day = datetime.now(UTC).date().isoformat()
    overlay, unknown = draft_site(pinned, located, fit, inventories, day)
    listed = write_list(proposal)
    expected_text.parse(LIST, listed)  # what we propose can be read: a fault here is ours
    files = {LIST: listed, OVERLAY: overlay}
    files |= {f"{NODES}/{i.node}.json": i.model_dump_json() for i in inventories}
    if not dry_run:
        _write(out, files)
    if as_json:
        _print_json(proposal, unknown, fit, files, written=not dry_run)
    else:
        _show(proposal, seen, unknown, fit, out, written=not dry_run)
    unread = [s for s in seen.switches if s.refusal]
    raise typer.Exit(1 if seen.refused or unread or fit.unfit or not seen.hosts else 0)


def _check(names: str, release: str, pinned: Matrix) -> None:
    if names:
        check_pattern(names)
    if release and release not in pinned.releases:
        remedy = f"It is one of: {', '.join(pinned.releases)}."
        raise InputError("--release", release, "there is no such release", remedy)


def _check_search(search: _Search) -> None:
    if search.switches and not os.environ.get(SWITCH_VARIABLE):
        remedy = f"Run: export {SWITCH_VARIABLE}=... (not the factory's: a switch refuses that)."
        raise InputError("--switches", "", f"{SWITCH_VARIABLE} is not set or empty", remedy)
    if not (search.networks or search.urls or search.leased):
        problem = "no place to look for BMCs"
        raise InputError("init", "", problem, "Give --range, --leases or --bmc.")


def _read_leases(files: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Return MAC and address of each lease in force. Raises InputError."""
    found = read_leased(files) if files else ()
    if len(found) > BMCS_MAX:
        problem = f"more than {BMCS_MAX} leases are in force"
        raise InputError("--leases", "", problem, "Name the file of the management network alone.")
    return found


def _read_factory(earlier: Expected | None) -> dict[str, tuple[str, Secret]]:
    """Return the first logins that the environment has, and those of an earlier list."""
    logins: dict[str, tuple[str, Secret]] = {}
    for vendor, quirk in ALL.items():
        password = os.environ.get(name_variable(vendor), "")
        if password:
            logins[vendor] = (quirk.factory_user, Secret(password))
    if earlier is not None:
        alone = earlier.model_copy(update={"nodes": ()})
        logins |= read_secrets(alone, os.environ).factory
    return logins


async def _read(search: _Search, memory: Path | None) -> Seen:
    governor = None if memory is None else LoginGovernor(memory=memory)
    transport = RedfishTransport(governor=governor)
    wire = SwitchHttps()
    try:
        with Progress(console=Console(stderr=True), transient=True) as bar:

            def begin(words: str) -> Done:
                task = bar.add_task(words, total=None)
                return lambda done, total: bar.update(task, completed=done, total=total)

            probes = await _find_bmcs(transport, search, begin)
            # a switch refuses the path of a service root as a BMC with a guarded one does
            known = {p.url for p in probes if p.root}
            addresses = await _find_switches(search, known, begin)
            done = begin("reading switches")
            clock = WallClock()
            read = await read_switches(transport, make_switches(wire), addresses, clock, done)
            switches = {a.url for a in addresses}
            others = [p for p in probes if p.url not in switches]
            done = begin("reading hosts")
            seen = await read_bmcs(transport, others, search.factory, search.limit_s, done)
    finally:
        await wire.close()
        await transport.close()
    leased = dict(search.leased)
    found = {"switches": read, "leased": leased, "factory_hostnames": FACTORY_HOSTNAMES}
    return seen.model_copy(update=found)


async def _find_bmcs(
    transport: RedfishTransport, search: _Search, begin: Callable[[str], Done]
) -> list[Probe]:
    found: dict[str, Probe] = {}
    for network in search.networks:
        done = begin(f"looking in {network}")
        quiet = partial(scan, progress=done, gap_seen=lambda _gap: None)
        found |= {p.url: p for p in await quiet(transport, network, search.port)}
    leased = [_write_url(address, search.port, 443) for _, address in search.leased]
    named = [u for u in (*search.urls, *leased) if u not in found]
    probes = await probe_all(transport, named, begin("asking addresses"), lambda _gap: None)
    found |= {p.url: p for p in probes}
    if len(found) > BMCS_MAX:
        problem = f"{len(found)} BMCs answer, more than {BMCS_MAX}"
        raise InputError("--range", "", problem, "Propose one pod at a time.")
    return list(found.values())


def _write_url(address: str, port: int, usual: int) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"https://{host}" + ("" if port == usual else f":{port}")


async def _find_switches(
    search: _Search, bmcs: set[str], begin: Callable[[str], Done]
) -> list[SwitchAddress]:
    """Return the switches to read: named ones, and those that answer in a named network."""
    urls: dict[str, None] = {}
    for text in search.switches:
        if "://" in text:
            urls[text.rstrip("/")] = None
            continue
        network = parse_network(text) if "/" in text else _parse_address(text)
        found = await find_listening(network, search.switch_port, begin(f"switches in {network}"))
        urls |= dict.fromkeys(_write_url(a, search.switch_port, 0) for a in found)
    secret = Secret(os.environ.get(SWITCH_VARIABLE, ""))
    return [
        SwitchAddress(u, search.switch_user, secret, system=_find_system(u))
        for u in urls
        if u not in bmcs
    ]


def _find_system(url: str) -> str:
    scheme = urlsplit(url).scheme
    return next((s.facts.name for s in SYSTEMS if s.facts.scheme == scheme), DEFAULT_OS)


def _parse_address(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        remedy = "Write 10.0.1.10, 10.0.1.0/28 or https://10.0.1.10:8765."
        raise InputError("--switches", text[:80], "this is no address", remedy) from None


# ------------------------------------------------------------------------------
# Files and words.


def _refuse_present(out: Path, *, force: bool) -> None:
    present = [name for name in (LIST, OVERLAY) if os.path.lexists(out / name)]
    if present and not force:
        problem = f"it has {' and '.join(present)} already"
        remedy = "Name a new folder with --out, or replace them with --force."
        raise InputError(str(out), "", problem, remedy)


def _write(out: Path, files: Mapping[str, str]) -> None:
    """Write each file beside its place, then put all in place. Raises InputError."""
    try:
        for name, text in files.items():
            place = out / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.with_name(f"{place.name}.new").write_text(text, encoding="utf-8")
        for name in files:
            (out / f"{name}.new").replace(out / name)
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError(str(out), "", problem, "Name a folder that you may write to.") from None


def _print_json(
    proposal: Proposal,
    unknown: Sequence[Missing],
    fit: ReleaseFit,
    files: Mapping[str, str],
    *,
    written: bool,
) -> None:
    report = {
        "release": fit.release,
        "unfit": list(fit.unfit),
        "written": written,
        "missing": [m.model_dump() for m in (*proposal.missing, *unknown)],
        "guesses": list(proposal.guesses),
        "files": {name: files[name] for name in (LIST, OVERLAY)},
    }
    typer.echo(json.dumps(report))


def _show(
    proposal: Proposal,
    seen: Seen,
    unknown: Sequence[Missing],
    fit: ReleaseFit,
    out: Path,
    *,
    written: bool,
) -> None:
    console = open_console()
    table = Table("name", "kind", "serial", "cards", "ports", "address")
    for node in proposal.expected["nodes"]:
        bmc = node.get("bmc", {})
        cells = [node["name"], node["kind"], bmc.get("serial", "")]
        cells += [str(len(node.get("dpus", ()))), str(len(node.get("ports", ())))]
        table.add_row(*cells, bmc.get("url") or node.get("address", ""))
    console.print(table)
    for guess in proposal.guesses:
        console.print(f"guessed: {guess}", markup=False, highlight=False)
    for missing in (*proposal.missing, *unknown):
        line = f"missing: {missing.what}: {missing.where}"
        console.print(line, markup=False, highlight=False)
    if seen.waiting:
        console.print(f"{len(seen.waiting)} cards show their serial after the intake only")
    verb = "Written" if written else "Nothing was written (--dry-run); it would be"
    typer.echo(f"{verb}: {out / LIST}, {out / OVERLAY} and {out / NODES}/, for {fit.release}.")
    for line in fit.unfit:
        typer.echo(f"no profile: {line}")
    for vendor, login in sorted(proposal.expected["factory_credentials"].items()):
        if variable := login.get("password_env"):
            state = "set" if os.environ.get(variable) else "NOT SET"
            typer.echo(f"{variable} ({state}): {ALL.get(vendor, UNKNOWN).factory_printed}")
