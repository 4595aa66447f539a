"""`provisioner plan`: what one node needs for a release, from files, with no daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner import components
from provisioner.cli.options.inventory_files import read_inventory
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.cli.options.showing import console
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Neighbour, Plan
from provisioner.planning.path import planner
from provisioner.planning.path.profiles import choose_profile

BLOCKED = 1  # exit code: the input is good, the answer is no

Neighbours = Annotated[
    list[str] | None,
    typer.Option(
        "--neighbour",
        metavar="KIND=VERSION",
        help="What runs at the other end of the cables, for example switch.os=5.12.1.100.",
    ),
]


def plan(
    inventory: Annotated[
        Path, typer.Option(help="What `provisioner inspect --json` printed, or an Inventory.")
    ],
    release: Annotated[str, typer.Option(help="The release of the matrix to go to.")],
    matrix: Annotated[
        list[Path] | None,
        typer.Option(help="Matrix file; given again, each is laid over the ones before it."),
    ] = None,
    profile: Annotated[str, typer.Option(help="Instead of the one that matches.")] = "",
    neighbour: Neighbours = None,
    *,
    lab: Annotated[
        bool,
        typer.Option(
            "--lab", help="Leave unknown pins alone; accept missing evidence, files and digests."
        ),
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print the steps to a release with their reasons, or what blocks and what would unblock it.

    Exit code 0: a plan, or nothing to do; 1: blocked or in flight; 2: the input is wrong.
    """
    pinned = read_matrix(matrix or [])
    seen = read_inventory(inventory)
    found = _planned(
        seen, pinned, release, profile, _neighbours(neighbour or []), production=not lab
    )
    if json_:
        whole = found.model_dump(mode="json")
        typer.echo(json.dumps(whole | {"done": found.done}, indent=2))
    else:
        _show(found, seen)
    raise typer.Exit(BLOCKED if found.blockers or found.in_flight else 0)


def _planned(
    seen: Inventory,
    pinned: Matrix,
    release: str,
    profile: str,
    neighbours: tuple[Neighbour, ...],
    *,
    production: bool,
) -> Plan:
    wanted = pinned.releases.get(release)
    if wanted is None:
        known = ", ".join(sorted(pinned.releases))
        raise InputError("--release", "", f"there is no release {release!r}", f"Known: {known}.")
    if profile and profile not in wanted.profiles:
        known = ", ".join(sorted(wanted.profiles))
        raise InputError(
            "--profile", "", f"{release} has no profile {profile!r}", f"Known: {known}."
        )
    chosen = profile or choose_profile(seen, wanted)
    if isinstance(chosen, Blocker):
        return Plan(node=seen.node, release=release, profile="", blockers=(chosen,))
    return planner.plan(seen, pinned, release, chosen, neighbours=neighbours, production=production)


def _neighbours(texts: list[str]) -> tuple[Neighbour, ...]:
    """Each option as one neighbour; an unknown kind is a slip of the pen."""
    out: list[Neighbour] = []
    for text in texts:
        kind, _, version = text.partition("=")
        if not version or kind not in components.ALL:
            raise InputError(
                "--neighbour",
                "",
                f"{text!r} is not KIND=VERSION with a known component kind",
                "Write for example switch.os=5.12.1.100.",
            )
        out.append(Neighbour(node=f"neighbour {len(out) + 1}", versions={kind: (version,)}))
    return tuple(out)


def _show(found: Plan, seen: Inventory) -> None:
    shown = console()
    shown.print(f"{seen.node} to {found.release}, profile {found.profile or 'none'}")
    if found.blockers:
        table = Table("reason", "what", "why", "what would unblock it", title="Blocked")
        for b in found.blockers:
            table.add_row(*_cells(b.reason.value, b.subject, b.detail, b.unblock))
        shown.print(table)
        return
    if found.in_flight:
        shown.print("In flight; look again later: " + "; ".join(found.in_flight))
        return
    if found.done:
        shown.print("Everything pinned runs; nothing waits. Nothing to do.")
        return
    table = Table("#", "step", "slots", "takes away", "min", "why", title="Steps")
    for number, step in enumerate(found.steps, 1):
        minutes = f"{step.duration_s / 60:.0f}"
        slots = ", ".join(step.slots or step.bmcs)
        takes = step.disruption.value
        table.add_row(*_cells(str(number), step.title, slots, takes, minutes, step.reason))
    shown.print(table)
    shown.print(
        f"{len(found.steps)} steps, {found.outages} outages, {found.resets} resets, "
        f"about {found.duration_s / 60:.0f} minutes"
    )


def _cells(*values: str) -> list[Text]:
    """What a device says is shown as it is, never read as markup."""
    return [Text(value) for value in values]
