"""`provisioner rack fabric`: whether the GPUs of a rack's NVLink domain can be used together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.checked_options import JsonOption, check_directory
from provisioner.cli.options.tables import strip_controls
from provisioner.integrations.racks.fabric.fabric_gate import (
    TEXT_MAX_BYTES,
    GpuFabric,
    find_unnamed,
    judge_partition,
    read_fabric,
)
from provisioner.integrations.racks.fabric.fabric_proof import FabricProof, keep_proof
from provisioner.integrations.racks.fabric.imex_gate import TEXT_MAX_BYTES as IMEX_MAX_BYTES
from provisioner.integrations.racks.fabric.imex_gate import ImexView, judge_imex, read_imex
from provisioner.integrations.racks.fabric.nccl_gate import (
    LOG_MAX_BYTES,
    TrayLog,
    judge_nccl,
    read_nccl,
)
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.plan import read_plan
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker
from provisioner.runtime.shipped import read_text

GPUS = 4  # of a tray of a GB200 or GB300 NVL72


def fabric(
    plan: Annotated[Path, typer.Argument(help="YAML file with the racks; see docs/racks.md.")],
    rack: Annotated[str, typer.Argument(help="Name of a rack of the plan.")],
    folder: Annotated[
        Path, typer.Argument(help="Folder with each tray's `nvidia-smi -q`, as TRAY.txt.")
    ],
    gpus: Annotated[int, typer.Option(min=1, max=16, help="GPUs of a tray.")] = GPUS,
    cluster: Annotated[str, typer.Option(help="ClusterUUID that the controller gave.")] = "",
    clique: Annotated[str, typer.Option(help="CliqueId of the partition.")] = "",
    imex: Annotated[
        bool,
        typer.Option("--imex", help="Also `nvidia-imex-ctl -N -j`, as TRAY.imex.json."),
    ] = False,
    nccl: Annotated[
        bool, typer.Option("--nccl", help="Also a whole run's logs of NCCL, as TRAY.nccl.txt.")
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(help="The racks' folder: its daemon then hands trays of the domain over."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge the NVLink fabric of a rack's domain by what each of its GPUs says.

    State, status and health of each GPU have to agree, and all GPUs have to name one cluster and
    one clique. A tray without a file fails it. Links are not judged by it.
    With --imex every host has to see all others of the domain READY and connected. With --nccl each
    rank of one run over all GPUs has to have used NVLink, by NCCL's own words, and no network.
    With --keep a domain that passes all three is proved for 90 days from its oldest file on; one
    that fails is proved no more.

    Exit code 1: the domain's GPUs cannot be used together; each reason is told.

    Example: provisioner rack fabric racks.yaml r01 ./smi
    """
    planned = read_plan(plan)
    wanted = planned.find(rack)
    check_directory("FOLDER", folder)
    trays = [unit for unit in wanted.units if unit.kind is Kind.COMPUTE_TRAY]
    if not trays:
        raise InputError("RACK", rack, "the plan has no compute tray in it", "Name another.")
    domains = {domain_of(wanted, unit) for unit in trays}
    names = [
        unit.name
        for one in planned.racks
        for unit in one.units
        if unit.kind is Kind.COMPUTE_TRAY
        and (one.name == rack or domain_of(one, unit) in domains - {""})
    ]
    if keep is not None and (not (imex and nccl) or len(domains) != 1 or "" in domains):
        problem = "a proof needs --imex, --nccl, and a rack of one NVLink domain with a name"
        raise InputError("--keep", str(keep), problem, "Give them.")
    counts = dict.fromkeys(names, gpus)
    read = [
        gpu
        for name in names
        if (file := folder / f"{name}.txt").is_file()
        for gpu in read_fabric(name, read_text(file, TEXT_MAX_BYTES))
    ]
    faults = judge_partition(counts, read, cluster, clique)
    if imex:
        faults += judge_imex({name: _read_imex(folder / f"{name}.imex.json") for name in names})
    if nccl:
        faults += judge_nccl(counts, {n: _read_nccl(folder / f"{n}.nccl.txt") for n in names})
    if keep is not None:
        faults += find_unnamed(read)
        _keep(keep, folder, min(domains), names, None if faults else read)
    _tell(names, len(read), faults, as_json=as_json)
    raise typer.Exit(1 if faults else 0)


def _tell(names: Sequence[str], read: int, faults: Sequence[Blocker], *, as_json: bool) -> None:
    if as_json:
        said = [one.model_dump(mode="json") for one in faults]
        typer.echo(json.dumps({"trays": names, "gpus": read, "faults": said}, indent=2))
        return
    for one in faults:
        typer.echo(f"{one.subject}: {strip_controls(one.detail)}. {one.unblock}")
    typer.echo(f"{len(names)} trays, {read} GPUs read, {len(faults)} faults")


def _keep(
    racks: Path,
    folder: Path,
    domain: str,
    names: Sequence[str],
    proved: Sequence[GpuFabric] | None,
) -> None:
    """Keep the proof of a domain, as old as its oldest file; None: it has none any more."""
    if proved is None:
        keep_proof(racks, domain, None)
        return
    ends = (".txt", ".imex.json", ".nccl.txt")
    oldest = min((folder / f"{name}{end}").stat().st_mtime for name in names for end in ends)
    trays = {name: tuple(sorted(g.serial for g in proved if g.tray == name)) for name in names}
    keep_proof(racks, domain, FabricProof(domain=domain, trays=trays, judged_at=oldest))


def _read_nccl(file: Path) -> TrayLog | None:
    if not file.is_file():
        return None
    with file.open("rb") as log:
        return read_nccl(log.read(LOG_MAX_BYTES))


def _read_imex(file: Path) -> ImexView | None:
    return read_imex(read_text(file, IMEX_MAX_BYTES)) if file.is_file() else None
