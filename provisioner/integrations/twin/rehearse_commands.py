"""`provisioner rehearse`: the site's own files against a simulated twin of that site."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.matrix_files import MatrixOption, read_inventory, read_matrix
from provisioner.cli.options.tables import Table, open_console
from provisioner.daemon.data import read_expected, read_secrets, read_settings
from provisioner.integrations.twin.fleet_twin import HOSTS_MAX
from provisioner.integrations.twin.loop import run
from provisioner.integrations.twin.site_twin import (
    Rehearsed,
    Show,
    SiteFiles,
    SiteTwin,
    is_in_service,
    list_unsimulated,
    select_hosts,
)
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node

HOSTS = 4


def rehearse(
    file: Annotated[Path, typer.Option("--file", help="The site's expected-hardware list.")],
    matrix: MatrixOption = None,
    settings: Annotated[Path | None, typer.Option(help="Settings file, as for `serve`.")] = None,
    inventories: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the hosts' inventories (NAME.json), as `init` writes it: the twin "
            "starts at their versions."
        ),
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(
            min=1,
            max=HOSTS_MAX,
            help="So many hosts, the first by place; each takes some seconds of a core.",
        ),
    ] = HOSTS,
    lab: Annotated[
        bool, typer.Option("--lab", help="As `serve --lab`: unknown pins are left alone.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Rehearse an intake: the site's own list and overlay on a simulated twin of that site.

    No device is asked, and nothing is written. The real daemon takes the twin in, by the list's
    names, serials, cables and passwords, and drives it to the list's release and tenants in virtual
    time. Exit code 0: every node came into service; 1: one did not, with the reason and remedy.

    Example: provisioner rehearse --file expected.yaml --matrix site.yaml --inventories nodes
    """
    listed = read_expected(file)
    secrets = read_secrets(listed, os.environ)
    chosen = read_settings(settings)
    if lab:
        chosen = chosen.model_copy(update={"production": False})
    expected = select_hosts(listed, nodes)
    known = _read_inventories(inventories, [n.name for n in expected.nodes])
    files = SiteFiles(expected, secrets, read_matrix(matrix or []), chosen, known)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rehearsing", total=len(expected.nodes))

        def show(now: Sequence[Node], spent_s: float) -> None:
            served = sum(map(is_in_service, now))
            told = f"rehearsing, {spent_s / 3600:.1f} h of the twin"
            bar.update(task, completed=served, description=told)

        found = _rehearse(files, show)
    extra = list_unsimulated(expected)
    if as_json:
        typer.echo(json.dumps(_to_json(found, extra)))
    else:
        _print(found, extra)
    raise typer.Exit(0 if found.good else 1)


def _rehearse(files: SiteFiles, show: Show) -> Rehearsed:
    async def work(folder: Path) -> Rehearsed:
        twin = SiteTwin(files, folder)
        try:
            return await twin.rehearse(show)
        finally:
            await twin.close()

    with tempfile.TemporaryDirectory(prefix="twin-") as folder:
        return run(work(Path(folder)))


def _read_inventories(folder: Path | None, names: Sequence[str]) -> dict[str, Inventory]:
    if folder is None:
        return {}
    places = {name: folder / f"{name}.json" for name in names}
    return {name: read_inventory(place) for name, place in places.items() if place.is_file()}


def _to_json(found: Rehearsed, extra: Sequence[str]) -> dict[str, object]:
    return {
        "good": found.good,
        "nodes": [
            {
                "name": n.id,
                "state": n.state.value,
                "tenant": n.tenant,
                "hours": found.hours.get(n.id),
                "blockers": [b.model_dump(mode="json") for b in n.blockers],
            }
            for n in found.nodes
        ],
        "refused": [b.model_dump(mode="json") for b in found.refused],
        "violations": list(found.violations),
        "short": list(found.short),
        "assumed": [*found.assumed, *extra],
    }


def _print(found: Rehearsed, extra: Sequence[str]) -> None:
    console = open_console()
    table = Table("node", "state", "hours of the twin", "reason", "remedy")
    for node in found.nodes:
        hours = f"{found.hours[node.id]:.1f}" if node.id in found.hours else ""
        why = [str(b) for b in node.blockers] or ([] if is_in_service(node) else [node.note])
        remedies = dict.fromkeys(b.unblock for b in node.blockers)
        table.add_row(node.id, node.state.value, hours, "\n".join(why), "\n".join(remedies))
    console.print(table)
    for blocker in found.refused:
        line = f"not taken in: {blocker}. {blocker.unblock}"
        console.print(line, markup=False, highlight=False)
    for violation in found.violations:
        console.print(f"violated: {violation}", markup=False, highlight=False)
    for tenant in found.short:
        line = f"{tenant} got too few nodes: see its VRF, units and wishes on the list"
        console.print(line, markup=False, highlight=False)
    for line in (*found.assumed, *extra):
        console.print(f"assumed: {line}", markup=False, highlight=False)
    states = Counter(n.state.value for n in found.nodes)
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    verdict = "The rehearsal ended well" if found.good else "The rehearsal did NOT end well"
    typer.echo(f"{verdict}: {told or 'no node was taken in'}.")
