"""`provisioner doctor`: examines a whole site before go-live, and reports the remedies."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from provisioner.adapters.artifact_source import HttpArtifactServer
from provisioner.adapters.redfish.discovery import Network, parse_network, scan
from provisioner.adapters.redfish.governor import LoginGovernor
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options.checked_options import JsonOption, check_artifact_url, check_ca
from provisioner.cli.options.matrix_files import DataOption, MatrixOption, read_matrix
from provisioner.cli.options.serve_options import PlanFile
from provisioner.cli.options.tables import Table, open_console
from provisioner.daemon.cluster import digests_of
from provisioner.daemon.data import (
    DATABASE,
    database_of,
    open_data,
    read_expected,
    read_secrets,
    read_settings,
)
from provisioner.execution.actions.reach import Reach
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.execution.observe.intake import Secrets
from provisioner.integrations.site_examination import judging as judge
from provisioner.integrations.site_examination import looking as examination
from provisioner.integrations.site_examination.judging import Examined, Standing
from provisioner.integrations.site_examination.looking import Looked
from provisioner.integrations.site_examination.uplinks import judge_uplinks
from provisioner.model.expected import Expected, ExpectedNode
from provisioner.model.input_error import InputError
from provisioner.model.matrix import MAINTENANCE, Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.planning.intake.pairing import assemble_nodes, foresee_intake
from provisioner.planning.matrix.pinned_files import list_pinned_files
from provisioner.planning.places import address_plan
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.watch.membership import Joined, find_differences
from provisioner.planning.watch.shards import LANES, find_shard, name_unit
from provisioner.ports import Clock, PortError, SwitchAddress
from provisioner.runtime.event_loop import find_open_files_limit
from provisioner.runtime.shipped import read_text
from provisioner.runtime.switch_systems import SwitchSystems, make_switches
from provisioner.runtime.wall_clock import WallClock, read_clock
from provisioner.settings import Settings
from provisioner.store import open_store
from provisioner.store.database import database as examining
from provisioner.store.database.postgres import extra_missing, is_postgres, postgres_url, shown

# ------------------------------------------------------------------------------
# Compares the daemons that share a database, for `provisioner doctor`.


AREA = "daemons"
UNITS_NAMED = 8  # of a daemon: a line for people


def examine_daemons(database: str, digests: Mapping[str, str]) -> tuple[Examined, ...]:
    """Compare living daemons with one another, and with these options; () for a file."""
    if not is_postgres(database):
        return ()
    where = shown(postgres_url(database))
    try:
        import psycopg

        from provisioner.store.database.seat import read_members
    except ModuleNotFoundError as missing:
        raise extra_missing(where, str(missing.name)) from None
    try:
        members = read_members(database)
        units = asyncio.run(_count_nodes(database)) if members else {}
    except (psycopg.Error, InputError) as error:
        remedy = "Check its address, the user's rights, and that its schema is this version's."
        return (judge.report_bad(AREA, where, " ".join(str(error).split()), remedy),)
    if not members:
        return (judge.report_good(AREA, where, "no daemon runs"),)
    return _compared(members, units, digests)


async def _count_nodes(database: str) -> Mapping[int, Counter[str]]:
    """Return how many nodes each unit of the fabric has, by shard."""
    store = open_store(database, reads_only=True)
    try:
        nodes = [*await store.nodes.list(), *await store.nodes.list_set_aside()]
    finally:
        await store.close()
    units: dict[int, Counter[str]] = {}
    for node in nodes:
        units.setdefault(find_shard(node), Counter())[name_unit(node)] += 1
    return units


def describe_shards(shards: Collection[int], units: Mapping[int, Counter[str]]) -> str:
    """Return what a daemon does beside operations, with its units by name."""
    mine: Counter[str] = Counter()
    for shard in shards:
        mine.update(units.get(shard, {}))
    named = ", ".join(sorted(mine)[:UNITS_NAMED])
    more = f" and {len(mine) - UNITS_NAMED} more" if len(mine) > UNITS_NAMED else ""
    lanes = len(set(LANES).intersection(shards))
    told = f"{mine.total()} nodes of {len(mine)} units" + (f" ({named}{more})" if mine else "")
    return f"looks after {told}, and sends {lanes} of {len(LANES)} parts of the notices"


def _compared(
    members: Sequence[Joined], units: Mapping[int, Counter[str]], digests: Mapping[str, str]
) -> tuple[Examined, ...]:
    newest = members[-1]
    findings = []
    for member in members:
        apart = find_differences(newest, member)
        if apart:
            detail = f"works by another {', '.join(apart)} than {newest.id}, which joined last"
            remedy = "Give it the same version, matrix, overlays and settings; restart it."
            findings.append(judge.report_bad(AREA, member.id, detail, remedy))
        else:
            same = f"works by the same as all; {describe_shards(member.shards, units)}"
            findings.append(judge.report_good(AREA, member.id, same))
    options = Joined(id="", digests={k: v for k, v in digests.items() if k in newest.digests})
    mine = [p for p in options.digests if newest.digests[p] != options.digests[p]]
    if mine:
        detail = f"{', '.join(mine)} as given here differ from what the daemons work by"
        remedy = "Give `doctor` the same --matrix and --settings as `serve`."
        findings.append(judge.report_warning(AREA, "these options", detail, remedy))
    return tuple(findings)


BUNDLE = "bluefield.bundle"
HTTPS_PORT = 443
STYLES = {
    Standing.GOOD: "green",
    Standing.WARNING: "yellow",
    Standing.BAD: "bold red",
    Standing.NOT_LOOKED: "magenta",
    Standing.AFTER_INTAKE: "cyan",
}


def doctor(
    data: DataOption = Path("var"),
    matrix: MatrixOption = None,
    artifacts: Annotated[
        Path, typer.Option(help="Directory of firmware files, as for `serve`.")
    ] = Path("artifacts"),
    artifact_url: Annotated[
        str, typer.Option(help="Server of files, as for `serve`; each pinned file is read whole.")
    ] = "",
    settings: Annotated[Path | None, typer.Option(help="Settings file, as for `serve`.")] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="File with the CAs to trust for BMCs.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Expected-hardware list: examine its BMCs and switches, too."),
    ] = None,
    networks: Annotated[
        list[str] | None,
        typer.Option("--range", help="With --file: look for BMCs in this network; repeatable."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the BMCs in --range.")] = HTTPS_PORT,
    profiles: Annotated[
        list[str] | None,
        typer.Option("--profile", help="A hardware profile that the site has; repeatable."),
    ] = None,
    plan: PlanFile = None,
    lab: Annotated[
        bool, typer.Option("--lab", help="As `serve --lab`: unknown pins are left alone.")
    ] = False,
    whole: Annotated[bool, typer.Option("--all", help="Show good findings, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Examine a site before go-live and report the remedies; nothing is changed.

    Examines this machine (disk, open files, clock), the database, the matrix and its artifacts, the
    maintenance image, and each BMC and switch: whether it is reached, its certificate, whether the
    credential works (tried once; a stored one that was refused is not tried again), and its clock.
    Before the first intake the list's factory credentials are tried, and what only an intake can
    show is "after intake". Of the matrix, what the site uses is judged: the releases of its list
    and nodes. With --plan the cables between leaves, spines and superspines are compared with the
    plan, by what both ends hear. Exit code 0: ready; 1: a finding is bad, or was not examined; 2:
    the input is wrong.

    Example: provisioner doctor --file expected.yaml --range 10.0.0.0/24 --matrix site.yaml
    """
    chosen = _choose(settings, lab=lab)
    pinned = read_matrix(matrix or [])
    check_ca("--ca-file", ca_file)
    expected = read_expected(file) if file else None
    search = _read_search(expected, networks or (), port, plan)
    use = judge.find_use(pinned, expected, asyncio.run(_read_nodes(data)), profiles or ())
    examined = [*_machine(data, chosen)]
    examined += judge.judge_matrix(pinned, use, production=chosen.production)
    examined += [judge.judge_list(expected, pinned)] if expected else []
    examined.append(judge.judge_image(pinned, lab=not chosen.production))
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("artifacts", total=None)
        place = (artifacts, check_artifact_url(artifact_url), ca_file)
        done = partial(_advance, bar, task)
        examined += _artifacts(pinned, use.releases, place, done, lab=not chosen.production)
        examined += _boot_token(pinned, place, chosen)
        task = bar.add_task("BMCs and switches", total=None)
        examined += asyncio.run(_devices(data, ca_file, search, partial(_advance, bar, task)))
    examined += _database(data)
    examined += examine_daemons(database_of(data), digests_of(chosen, pinned, {}))
    _show(examined, as_json=as_json, whole=whole)
    if not judge.is_ready(examined):
        raise typer.Exit(1)


def _choose(settings: Path | None, *, lab: bool) -> Settings:
    chosen = read_settings(settings)
    return chosen.model_copy(update={"production": False}) if lab else chosen


def _advance(bar: Progress, task: TaskID, done: int, total: int) -> None:
    bar.update(task, completed=done, total=total)


def _machine(data: Path, chosen: Settings) -> tuple[Examined, ...]:
    parent = next(p for p in (data.absolute(), *data.absolute().parents) if p.exists())
    return (
        judge.judge_disk(str(parent), shutil.disk_usage(parent).free),
        judge.judge_open_files(find_open_files_limit(), chosen),
    )


def _database(data: Path) -> tuple[Examined, ...]:
    file = data / DATABASE
    if not file.is_file():
        return (judge.report_later("database", str(file), "the first start of `serve` makes it"),)
    standing = examining.look(file)
    if standing.problem:
        remedy = "Restore it from a backup, or run the version that wrote it."
        return (judge.report_bad("database", str(file), standing.problem, remedy),)
    if not os.access(file, os.W_OK):
        remedy = "Correct its owner: the daemon's user writes it."
        return (judge.report_bad("database", str(file), "it cannot be written", remedy),)
    if standing.behind:
        detail = f"schema {standing.revision}: the next start runs {standing.behind} migrations"
        remedy = "Start the daemon, or run `provisioner db upgrade`: each makes a copy first."
        return (judge.report_warning("database", str(file), detail, remedy),)
    if damaged := examining.find_damaged(file):
        remedy = "Restore the row, or the database, from a backup."
        return tuple(judge.report_bad("row", row.where, row.problem, remedy) for row in damaged)
    detail = f"whole, schema {standing.revision}, every row can be read"
    return (judge.report_good("database", str(file), detail),)


def _artifacts(
    pinned: Matrix,
    releases: Collection[str],
    place: tuple[Path, str, Path | None],
    done: Callable[[int, int], None],
    *,
    lab: bool,
) -> Iterable[Examined]:
    files = list_pinned_files(pinned, releases)
    directory, url, ca_file = place
    if not files:
        remedy = "Name files and digests in an overlay of the matrix."
        where = url or str(directory)
        if lab:
            detail = "the matrix names no file: only what runs already can be certified"
            return [judge.report_warning("artifacts", where, detail, remedy)]
        return [judge.report_not_looked("artifacts", where, "the matrix names no file", remedy)]
    if url:
        return asyncio.run(_outside(files, _bundles(pinned), directory, url, ca_file, done))
    examined = []
    for count, (name, sha256) in enumerate(sorted(files.items()), 1):
        examined.append(
            judge.judge_artifact(name, sha256, examination.file_digest(directory, name))
        )
        done(count, len(files))
    return examined


def _boot_token(
    pinned: Matrix, place: tuple[Path, str, Path | None], chosen: Settings
) -> list[Examined]:
    """Examine whether the maintenance image carries its boot token in the form that devices get."""
    image = pinned.images.get(MAINTENANCE)
    directory, url, _ = place
    if image is None or not image.artifact:
        return []
    carried = False if url else asyncio.run(Artifacts(directory).carries_slot(image.artifact))
    if carried is None:
        return []  # the file's own line reports that it is missing
    allowed = chosen.agent_lookup_trusts == "first"
    return [judge.judge_boot_token(image.artifact, carried=carried, allowed=allowed)]


def _bundles(pinned: Matrix) -> frozenset[str]:
    """Examine files that cards pull, whose BMCs send requests of their own form."""
    profiles = [p for release in pinned.releases.values() for p in release.profiles.values()]
    pins = {p.pins[BUNDLE].artifact for p in profiles if BUNDLE in p.pins}
    return frozenset(pins | {edge.artifact for edge in pinned.edges.get(BUNDLE, ())})


async def _outside(
    files: Mapping[str, str],
    doubled: Collection[str],
    directory: Path,
    url: str,
    ca_file: Path | None,
    done: Callable[[int, int], None],
) -> list[Examined]:
    """Examine each file as devices get it: it is read whole, and none of it is stored."""
    examined = []
    server = HttpArtifactServer(url, ca_file)
    outside = OutsideArtifacts(directory, server, WallClock())
    try:
        for count, (name, sha256) in enumerate(sorted(files.items()), 1):
            content = await outside.read_outside(name)
            # the same request as the card's BMC sends
            if not isinstance(content, Blocker) and name in doubled:
                content = await outside.confirm_offer(name, content.sha256, doubled=True) or content
            if isinstance(content, Blocker):
                examined.append(
                    judge.report_bad("artifacts", name, content.detail, content.unblock)
                )
            else:
                examined.append(judge.judge_artifact(name, sha256, content.sha256))
            done(count, len(files))
    finally:
        await outside.close()
        await server.close()
    return examined


class _Search(NamedTuple):
    """The list of a site that is taken in, its passwords, and the networks of its BMCs."""

    expected: Expected | None
    secrets: Secrets
    networks: tuple[Network, ...]
    port: int
    plan: AddressPlan | None = None  # whose cables between switches are to be compared


def _read_search(
    expected: Expected | None, networks: Iterable[str], port: int, plan: Path | None
) -> _Search:
    logins = read_secrets(expected, os.environ) if expected else Secrets({}, {})
    ranges = tuple(parse_network(n) for n in networks)
    cabled = address_plan.parse(str(plan), read_text(plan)) if plan else None
    return _Search(expected, logins, ranges, port, cabled)


async def _read_nodes(data: Path) -> tuple[Node, ...]:
    """Return the nodes that were taken in; none where the database is not there, or not usable."""
    if not _usable(data):
        return ()
    async with open_data(data, read_clock(data).now(), needs_key=False) as opened:
        return tuple(await opened.store.nodes.list())


async def _devices(
    data: Path, ca_file: Path | None, search: _Search, done: Callable[[int, int], None]
) -> list[Examined]:
    """Examine BMCs and switches of the data directory, and those of the list before intake."""
    clock: Clock = read_clock(data)
    usable = _usable(data)
    governor = LoginGovernor(memory=data / "failed-logins") if usable else None
    transport = RedfishTransport(ca_file=ca_file, governor=governor)
    switches = SwitchHttps(ca_file=ca_file)
    try:
        if not usable:  # opening it would make or migrate it, and the doctor changes nothing
            return await _look(search, (), (), transport, make_switches(switches), clock, done)
        async with open_data(data, clock.now(), needs_key=False) as opened:
            if isinstance(opened.keys, InputError):  # no credential can be tried
                return [_no_key(opened.keys)]
            nodes = await opened.store.nodes.list()
            subscriptions = await opened.store.alerts.list_subscriptions()
            unproved = judge.find_unproved(subscriptions, clock.now())
            systems = make_switches(switches)
            reach = Reach(transport, systems, opened.vault)
            tries = examination.looks(reach, clock, nodes, cables=search.plan is not None)
            told = await _look(search, nodes, tries, transport, systems, clock, done)
            return [*told, *unproved]
    except PortError as error:
        return [judge.report_failure("bmc", str(data), error.reason, str(error))]
    finally:
        await switches.close()
        await transport.close()


async def _look(
    search: _Search,
    nodes: Sequence[Node],
    tries: Sequence[Callable[[], Awaitable[Looked]]],
    transport: RedfishTransport,
    switches: SwitchSystems,
    clock: Clock,
    done: Callable[[int, int], None],
) -> list[Examined]:
    """Examine what was taken in by `tries`, then what the list adds to it."""
    expected = search.expected or Expected()
    known = {n.id for n in nodes}
    urls = {b.url for n in nodes for b in n.bmcs}
    entries = [n for n in expected.nodes if n.name not in known]
    own = {urlsplit(n.address).hostname for n in expected.nodes if n.kind is NodeKind.SWITCH}
    found = dict.fromkeys(n.bmc.url for n in entries if n.bmc.url and n.bmc.url not in urls)
    for network in search.networks:
        probes = await scan(transport, network, search.port, lambda _done, _all: None)
        found |= {p.url: None for p in probes if urlsplit(p.url).hostname not in own}
    factory = search.secrets.factory
    further = [
        partial(examination.stranger, transport, clock, u, factory) for u in found if u not in urls
    ]
    further += [
        partial(_listed_switch, transport, switches, clock, entry, search)
        for entry in entries
        if entry.kind is NodeKind.SWITCH
    ]
    looked = await examination.taken([*tries, *further], done)
    told = _told(looked)
    if search.plan is not None:
        site = {n.id for n in nodes if n.kind is NodeKind.SWITCH}
        site |= {n.name for n in entries if n.kind is NodeKind.SWITCH}
        around = {one.subject: one.around for one in looked if one.around is not None}
        told += judge_uplinks(search.plan, site, around)
    if not entries:
        return told
    endpoints = [one.endpoint for one in looked if one.endpoint]
    if not search.networks:
        return [*told, *judge.judge_serials(expected, endpoints, known)]
    unknown = expected.model_copy(update={"nodes": tuple(entries)})
    assembly = assemble_nodes(unknown, endpoints, clock.now())
    silent = [one.refusal for one in looked if one.refusal]
    return [*told, *judge.judge_pairing(foresee_intake(unknown, assembly, silent, known))]


async def _listed_switch(
    transport: RedfishTransport,
    switches: SwitchSystems,
    clock: Clock,
    entry: ExpectedNode,
    search: _Search,
) -> Looked:
    facts = switches.get_facts(entry.os, entry.address)
    if facts is not None and not facts.stored_login:
        remedy = f"Try it by hand: `ssh {urlsplit(entry.address).hostname} show version`."
        finding = judge.report_later("switch", entry.name, "it is reached by SSH key only", remedy)
        return Looked(subject=entry.name, examined=(finding,))
    login = search.secrets.switches.get(entry.name)
    if login is None:
        remedy = "Add `username` and `password_env` to its entry."
        finding = judge.report_bad("switch", entry.name, "the list has no login for it", remedy)
        return Looked(subject=entry.name, examined=(finding,))
    address = SwitchAddress(entry.address, *login, system=entry.os)
    found = (entry.name, address)
    cables = search.plan is not None
    return await examination.switch_at(transport, switches, clock, *found, cables=cables)


def _no_key(why: InputError) -> Examined:
    return judge.report_bad("master key", why.source, why.problem, why.remedy)


def _usable(data: Path) -> bool:
    file = data / DATABASE
    if not file.is_file():
        return False
    current = examining.look(file)
    return not current.problem and not current.behind


def _told(found: tuple[Looked, ...]) -> list[Examined]:
    examined = [e for one in found for e in one.examined]
    if not found:
        remedy = "Take nodes in, or give --file LIST."
        examined.append(
            judge.report_not_looked("bmc", "(none)", "no BMC and no switch is known", remedy)
        )
    return [*examined, *judge.judge_clocks({one.subject: one.skew_s for one in found})]


def _show(examined: list[Examined], *, as_json: bool, whole: bool) -> None:
    if as_json:
        document = {
            "ready": judge.is_ready(examined),
            "examined": [e.model_dump(mode="json") for e in examined],
        }
        typer.echo(json.dumps(document))
        return
    out = open_console()
    table = Table("area", "what", "standing", "detail", "what to do")
    for one in examined:
        if whole or one.standing is not Standing.GOOD:
            standing = Text(one.standing.value, style=STYLES[one.standing])
            table.add_row(one.area, Text(one.subject), standing, Text(one.detail), Text(one.remedy))
    if table.row_count:
        out.print(table)
    counts = {s: sum(e.standing is s for e in examined) for s in Standing}
    out.print(", ".join(f"{n} {s.value}" for s, n in counts.items() if n))
    out.print("ready" if judge.is_ready(examined) else "not ready: see what to do above")
