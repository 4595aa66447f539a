"""`provisioner rack fabric`: whether the GPUs of a rack's NVLink domain can be used together."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options.bmc_options import CaOption
from provisioner.cli.options.checked_options import JsonOption, check_ca, check_directory
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
from provisioner.integrations.racks.fabric.link_gate import judge_domain
from provisioner.integrations.racks.fabric.nccl_gate import (
    LOG_MAX_BYTES,
    TrayLog,
    judge_nccl,
    read_nccl,
)
from provisioner.integrations.racks.fabric.switch_looks import (
    OURS,
    build_login,
    look_at_switches,
)
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.plan import PlannedRack, RackPlan, read_plan
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker
from provisioner.runtime.shipped import read_text

GPUS = 4  # of a tray of a GB200 or GB300 NVL72


NvosOption = Annotated[
    str, typer.Option(help=f"Also links and controller, as NVOS says now; password in {OURS}.")
]


def fabric(
    plan: Annotated[Path, typer.Argument(help="YAML file with the racks; see docs/racks.md.")],
    rack: Annotated[str, typer.Argument(help="Name of a rack of the plan.")],
    folder: Annotated[
        Path | None, typer.Argument(help="Folder with each tray's `nvidia-smi -q`, as TRAY.txt.")
    ] = None,
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
    nvos_user: NvosOption = "",
    keep: Annotated[
        Path | None,
        typer.Option(help="The racks' folder: its daemon then hands trays of the domain over."),
    ] = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge the NVLink fabric of a rack's domain by what its GPUs, or its switches now, say.

    State, status and health of each GPU have to agree, and all GPUs have to name one cluster and
    one clique. A tray without a file fails it.
    With --imex every host has to see all others of the domain READY and connected. With --nccl each
    rank of one run over all GPUs has to have used NVLink, by NCCL's own words, and no network.
    With --nvos-user each NVLink interface of the domain's switches has to be wanted, in force,
    applied and saved in one state, and one switch alone to run the controller, CONFIGURED.
    With --keep a domain that passes all of it is proved for 90 days from its oldest file on; one
    whose files fail is proved no more.

    Exit code 1: the domain's GPUs cannot be used together; each reason is told.

    Example: provisioner rack fabric racks.yaml r01 ./smi --nvos-user admin
    """
    planned = read_plan(plan)
    names, domains = _list_domains(planned, planned.find(rack))
    kept = keep is None or (folder and imex and nccl and len(domains) == 1 and "" not in domains)
    if not kept:
        problem = "a proof needs FOLDER, --imex, --nccl, and a rack of one NVLink domain by name"
        raise InputError("--keep", str(keep), problem, "Give them.")
    read: list[GpuFabric] = []
    faults: tuple[Blocker, ...] = ()
    if folder is not None:
        check_directory("FOLDER", folder)
        counts = dict.fromkeys(names, gpus)
        read = _read_gpus(folder, names)
        faults += judge_partition(counts, read, cluster, clique)
        if imex:
            faults += judge_imex({name: _read_imex(folder / f"{name}.imex.json") for name in names})
        if nccl:
            faults += judge_nccl(counts, {n: _read_nccl(folder / f"{n}.nccl.txt") for n in names})
    elif imex or nccl or not nvos_user:
        raise InputError("FOLDER", "", "nothing is given to be judged", "Name it, or --nvos-user.")
    seen = asyncio.run(_judge_switches(planned, sorted(domains), nvos_user, ca))
    if keep is not None and folder is not None:
        faults += find_unnamed(read)
        if faults or not seen:  # one look at the switches takes no earlier proof away
            _keep(keep, folder, min(domains), names, None if faults else read)
    faults += seen
    _tell(names, len(read), faults, as_json=as_json)
    raise typer.Exit(1 if faults else 0)


def _list_domains(plan: RackPlan, wanted: PlannedRack) -> tuple[Sequence[str], set[str]]:
    """Return the trays of a rack's NVLink domains, in whichever rack, and the domains' names."""
    trays = [unit for unit in wanted.units if unit.kind is Kind.COMPUTE_TRAY]
    if not trays:
        raise InputError("RACK", wanted.name, "the plan has no compute tray in it", "Name another.")
    domains = {domain_of(wanted, unit) for unit in trays}
    names = [
        unit.name
        for one in plan.racks
        for unit in one.units
        if unit.kind is Kind.COMPUTE_TRAY
        and (one is wanted or domain_of(one, unit) in domains - {""})
    ]
    return names, domains


def _read_gpus(folder: Path, names: Sequence[str]) -> list[GpuFabric]:
    return [
        gpu
        for name in names
        if (file := folder / f"{name}.txt").is_file()
        for gpu in read_fabric(name, read_text(file, TEXT_MAX_BYTES))
    ]


async def _judge_switches(
    plan: RackPlan, domains: Sequence[str], user: str, ca: Path | None
) -> tuple[Blocker, ...]:
    """Return what speaks against the switches of domains, as they say now; no user, nothing."""
    login = build_login(user, os.environ.get(OURS, ""))
    check_ca("--ca", ca)
    transport = SwitchHttps(ca_file=ca)
    faults: tuple[Blocker, ...] = ()
    try:
        for domain in domains if user else ():
            views = await look_at_switches(plan, domain, transport, login)
            faults += judge_domain(plan, domain, views)
    finally:
        await transport.close()
    return faults


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
