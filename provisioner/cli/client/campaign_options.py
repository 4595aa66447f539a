"""What the commands of campaigns share: options, and how requests and answers are made."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Set
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from provisioner.cli.options.data_options import console, with_data
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.control.campaigns.campaign_requests import Answer, CampaignRequests
from provisioner.daemon.data import Data, read_settings, read_text
from provisioner.model.campaign_policy import Policy
from provisioner.model.outcome import Blocker
from provisioner.planning.campaigns.campaign_policy_text import parse_policy
from provisioner.planning.places.address_plan import parse
from provisioner.store.repositories.campaign_rows import CampaignRows

MatrixOption = Annotated[
    list[Path] | None, typer.Option("--matrix", help="Matrix, then overlays; as for `serve`.")
]
SettingsOption = Annotated[Path | None, typer.Option("--settings", help="As for `serve`.")]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", help="The site's address plan: tells switches' planes.")
]
LabOption = Annotated[bool, typer.Option("--lab", help="As for `serve`.")]
ByOption = Annotated[str, typer.Option("--by", help="Who asks; it is kept for good.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is kept for good.")]
IdArgument = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="As listed: c0001.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE")]


def requests_of(
    opened: Data,
    matrix: list[Path] | None = None,
    settings: Path | None = None,
    *,
    lab: bool = False,
    held: Set[str] | None = None,
    plan: Path | None = None,
) -> CampaignRequests:
    """What people may ask, on this data directory. `plan`: the address plan; it tells planes."""
    chosen = read_settings(settings, production=False if lab else None)
    book = CampaignRows(opened.store)
    pinned = read_matrix(matrix or [])
    fabric = None if plan is None else parse(str(plan), read_text(plan))
    return CampaignRequests(opened.store, book, opened.clock, chosen, pinned, held, fabric)


def ask(
    directory: Path,
    work: Callable[[CampaignRequests], Awaitable[Answer]],
    as_json: bool,
    **more: object,
) -> Answer:
    """Do one request and tell its answer. Exit code 1: it was refused."""

    async def run(opened: Data) -> Answer:
        matrix, settings = more.get("matrix"), more.get("settings")
        assert matrix is None or isinstance(matrix, list)
        assert settings is None or isinstance(settings, Path)
        return await work(requests_of(opened, matrix, settings, lab=bool(more.get("lab"))))

    answer = with_data(directory, run)
    if as_json:
        campaign = answer.campaign and answer.campaign.model_dump(mode="json")
        blockers = [b.model_dump(mode="json") for b in answer.blockers]
        typer.echo(json.dumps({"campaign": campaign, "blockers": blockers}))
    else:
        show_blockers(answer.blockers)
        if answer.campaign is not None and not answer.blockers:
            c = answer.campaign
            console().print(f"{c.id}: {c.state}" + (f" ({c.reason})" if c.reason else ""))
    if answer.blockers:
        raise typer.Exit(1)
    return answer


def show_blockers(blockers: tuple[Blocker, ...]) -> None:
    """Each refusal with what would help."""
    out = console()
    for blocker in blockers:
        out.print(Text(f"refused: {blocker.subject}: {blocker.detail}"))
        out.print(Text(f"  unblock: {blocker.unblock}"))


def read_policy(path: Path | None) -> Policy:
    """A policy file, or the defaults. Raises InputError that names the line."""
    if path is None:
        return Policy()
    return parse_policy(str(path), read_text(path))
