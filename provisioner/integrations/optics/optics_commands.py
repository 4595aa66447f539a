"""`provisioner optics`: which ends of links are dirty or dying, and what they have in common."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, open_console
from provisioner.integrations.optics.series import describe, read_days
from provisioner.integrations.optics.trends import (
    BAD,
    FLAPS_MIN,
    SharedCause,
    Verdict,
    find_mates,
    find_shared,
    judge_port,
    list_groups,
)
from provisioner.model.input_error import InputError

FolderArgument = Annotated[
    Path, typer.Argument(help="The folder `optics` in the daemon's data directory.")
]


def optics(
    folder: FolderArgument,
    every: Annotated[bool, typer.Option("--all", help="Also ports that are good.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Optics: ends that are dirty or dying, flaps, and causes that they share.

    Each port is judged by its days: the end at fault, since when, until when, and what to do.

    After a repair the port says whether its light proves it. Ports that flap or degrade are held
    against the fleet: a lot of optics, a part or a leaf with far more of them than its share is
    named. Exit code 1: an end is dirty, dying or dark.

    Example: provisioner optics data/optics --json
    """
    if not folder.is_dir():
        problem = "there is no such folder"
        raise InputError(str(folder), "", problem, "Name DATA/optics of a daemon that watches.")
    verdicts, groups = read_verdicts(folder)
    bad = [v for v in verdicts if v.state in BAD]
    flapping = [v for v in verdicts if v.flaps >= FLAPS_MIN]
    causes = {
        "degrading": find_shared([v.port for v in bad], groups),
        "flapping": find_shared([v.port for v in flapping], groups),
    }
    shown = verdicts if every else [v for v in verdicts if v in bad or v.flaps or v.repaired_on]
    if as_json:
        typer.echo(json.dumps(_to_json(shown, causes, len(verdicts)), indent=2))
    else:
        _show(shown, causes, len(verdicts))
    raise typer.Exit(1 if bad else 0)


def read_verdicts(folder: Path) -> tuple[list[Verdict], dict[str, tuple[str, ...]]]:
    """Return each port's verdict, and the groups that it belongs to."""
    verdicts = []
    groups: dict[str, tuple[str, ...]] = {}
    for leaf in sorted(p for p in folder.iterdir() if p.is_dir()):
        stored = read_days(leaf)
        mates = find_mates(stored)
        for name, days in sorted(stored.items()):
            port = f"{leaf.name}/{name}"
            verdicts.append(judge_port(port, days, mates.get(name, ())))
            groups[port] = list_groups(leaf.name, days[-1])
    return verdicts, groups


def _to_json(
    shown: list[Verdict], causes: dict[str, tuple[SharedCause, ...]], ports: int
) -> dict[str, Any]:
    rows = [
        {k: v if v is None or isinstance(v, int | str) else str(v) for k, v in row.items()}
        for row in (asdict(verdict) for verdict in shown)
    ]
    return {
        "ports_judged": ports,
        "ports": rows,
        "shared": {name: [asdict(c) for c in listed] for name, listed in causes.items()},
    }


def _show(shown: list[Verdict], causes: dict[str, tuple[SharedCause, ...]], ports: int) -> None:
    table = Table("port", "verdict", "flaps", "what to do", title=f"{ports} ports judged")
    for verdict in shown:
        proof = "" if verdict.repaired_on is None else _prove(verdict)
        todo = " ".join(w for w in (verdict.remedy, proof) if w)
        table.add_row(verdict.port, describe(verdict), str(verdict.flaps), todo or "—")
    console = open_console(160)
    console.print(table)
    for name, listed in causes.items():
        for cause in listed:
            console.print(
                f"{cause.group}: {cause.bad} of {cause.all_bad} {name} ports, though it has"
                f" {cause.ports} of the fleet's {cause.fleet}: look for its cause there."
            )


def _prove(verdict: Verdict) -> str:
    if verdict.proved:
        return f"Repaired on {verdict.repaired_on}: its light proves it."
    return f"Changed on {verdict.repaired_on}: not proved by its light."
