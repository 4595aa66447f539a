"""`provisioner topology`: the cabled fabric for Slurm, Kubernetes and Prometheus."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from provisioner.cli.client.connection import DataOption, open_connection
from provisioner.cli.client.following import read_nodes
from provisioner.integrations.topology.graph import (
    build_targets,
    group_pods,
    group_units,
    list_uncabled,
    write_gnmic,
    write_labels,
    write_slurm,
    write_slurm_conf,
)
from provisioner.model.input_error import InputError
from provisioner.runtime.shipped import read_text

app = typer.Typer(
    help="The cabled fabric for others: Slurm, Kubernetes, Prometheus.", no_args_is_help=True
)
NamesOption = Annotated[
    Path | None,
    typer.Option("--names", help="JSON of our names to the scheduler's, where they differ."),
]
TenantOption = Annotated[
    str, typer.Option("--tenant", help="Only nodes that serve this tenant; else all.")
]


@app.command()
def slurm(
    names: NamesOption = None,
    tenant: TenantOption = "",
    data: DataOption = None,
    conf: Annotated[
        bool, typer.Option("--conf", help="A topology.conf, for Slurm before 25.05.")
    ] = False,
) -> None:
    """Print a topology.yaml: hosts on the same leaves are one switch of the tree, and pods another.

    Example: provisioner topology slurm --tenant red --names names.json > /etc/slurm/topology.yaml
    """
    write = write_slurm_conf if conf else write_slurm
    nodes = _read(data, tenant)
    units = group_units(nodes)
    sys.stdout.write(write(units, _read_names(names), group_pods(nodes, units)))


@app.command()
def kubernetes(
    names: NamesOption = None, tenant: TenantOption = "", data: DataOption = None
) -> None:
    """Print `kubectl label` lines: each node's unit, and its pod of several, in topograph's labels.

    Example: provisioner topology kubernetes --tenant red | sh
    """
    nodes = _read(data, tenant)
    units = group_units(nodes)
    sys.stdout.write(write_labels(units, _read_names(names), group_pods(nodes, units)))


@app.command()
def targets(tenant: TenantOption = "", data: DataOption = None) -> None:
    """Print targets for Prometheus' file discovery: node_exporter and dcgm-exporter of hosts.

    Example: provisioner topology targets > /etc/prometheus/fleet.json
    """
    sys.stdout.write(json.dumps(build_targets(_read(data, tenant)), indent=1) + "\n")


@app.command()
def gnmic(
    port: Annotated[int, typer.Option(help="gNMI port of the leaves.", min=1, max=65535)] = 9339,
    data: DataOption = None,
) -> None:
    """Print a configuration of gnmic for all leaves: optics, counters, queues; logins are yours.

    Example: provisioner topology gnmic > /etc/gnmic.yaml
    """
    sys.stdout.write(write_gnmic(_read(data, ""), port))


def _read(data: Path | None, tenant: str) -> list[dict[str, Any]]:
    with_cables = read_nodes(open_connection(data=data))
    chosen = [n for n in with_cables if not tenant or n.get("tenant") == tenant]
    _tell(list_uncabled(chosen))
    return chosen


def _tell(uncabled: Sequence[str]) -> None:
    if uncabled:
        listed = ", ".join(uncabled[:8])
        typer.echo(f"left out, no cable of a rail is known: {listed}", err=True)


def _read_names(file: Path | None) -> Mapping[str, str]:
    if file is None:
        return {}
    try:
        names = json.loads(read_text(file))
    except ValueError:
        names = None
    if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
        remedy = 'Write {"su0-n04": "gpu004"}.'
        raise InputError(str(file), "", "is no JSON object of names", remedy)
    return names
