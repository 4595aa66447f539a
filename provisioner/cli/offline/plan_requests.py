"""`provisioner plan --requests`: the requests of a whole plan, recorded instead of sent."""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

import typer
from rich.table import Table
from rich.text import Text

from provisioner import quirks
from provisioner.adapters.redfish.dry_run import StandingClock
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.redfish.walk import Walk
from provisioner.cli.options.bmc_options import read_password
from provisioner.cli.options.checked_options import check_ca, check_pin, check_url
from provisioner.cli.options.showing import open_console
from provisioner.execution.plan_requests import DryBmc, PlanRequests, Rehearsal, open_dry_bmc
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import MAINTENANCE, Matrix
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Plan, Step
from provisioner.ports import BmcAddress
from provisioner.runtime import permit
from provisioner.settings.maintenance import BootWay

_SERVED_AT = "http://provisioner.invalid"  # where no daemon serves files


@dataclass(frozen=True)
class RequestOptions:
    """The options of `--requests`, as a person wrote them."""

    bmcs: list[str]
    user: str
    pin: str
    ca: Path | None
    artifacts: Path | None
    way: str
    insecure: bool

    def check(self, *, used: bool) -> None:
        """Raise InputError for an option that is wrong, missing, or given without --requests."""
        if self.way not in get_args(BootWay):
            remedy = f"Write one of {', '.join(get_args(BootWay))}."
            raise InputError("--maintenance-boot", self.way, "no such way", remedy)
        if not used:
            given_in_vain = {"--bmc": self.bmcs, "--user": self.user, "--artifacts": self.artifacts}
            for option, value in given_in_vain.items():
                if value:
                    raise InputError(option, "", "it needs --requests", "Add --requests.")
            return
        if not self.bmcs:
            raise InputError("--bmc", "", "--requests needs it", "Give --bmc https://HOST[:PORT].")
        if self.pin and len(self.bmcs) > 1:
            raise InputError("--pin", "", "it fits one BMC only", "Give --ca for several BMCs.")
        if self.artifacts is not None and not self.artifacts.is_dir():
            raise InputError(
                "--artifacts", str(self.artifacts), "no such folder", "Check the path."
            )

    def list_addresses(self) -> dict[str, BmcAddress]:
        """Return the address of each BMC by its name in the node."""
        secret = read_password(self.user)
        check_ca("--ca", self.ca)
        pin = check_pin(self.pin, insecure=self.insecure)
        addresses = {}
        for text in self.bmcs:
            name, separator, url = text.partition("=")
            if not separator:
                name = "host"
                url = text
            addresses[name] = BmcAddress(
                check_url("--bmc", url), self.user, secret, pin, self.insecure
            )
        return addresses


def print_requests(
    plan: Plan, inventory: Inventory, matrix: Matrix, options: RequestOptions, *, table: bool
) -> bool:
    """Print the requests; the last line is one JSON object. Return whether it was refused."""
    addresses = options.list_addresses()
    with tempfile.TemporaryDirectory() as folder:
        recorded = asyncio.run(_record(plan, inventory, matrix, options, addresses, Path(folder)))
    if table:
        _show(recorded)
    typer.echo(json.dumps(recorded.build_view()))
    return recorded.refused is not None


async def _record(
    plan: Plan,
    inventory: Inventory,
    matrix: Matrix,
    options: RequestOptions,
    addresses: dict[str, BmcAddress],
    folder: Path,
) -> PlanRequests:
    transport = RedfishTransport(ca_file=options.ca)
    clock = StandingClock()

    async def reach(name: str) -> DryBmc | Blocker:
        address = addresses.get(name)
        if address is None:
            return Blocker(
                reason=Reason.NOT_OFFERED,
                subject=name,
                detail=f"no address of the BMC {name} is given",
                unblock=f"Add --bmc {name}=https://HOST[:PORT].",
            )
        root = await Walk(transport, address, quirks.UNKNOWN).read_root()
        if not root:
            return Blocker(
                reason=Reason.UNREACHABLE,
                subject=address.url,
                detail="it does not answer as a Redfish service",
                unblock="Check the address, --user, and --ca, --pin or --insecure.",
            )
        return open_dry_bmc(transport, address, quirks.identify(root), clock)

    def find_file(step: Step) -> tuple[Path, bool]:
        if options.artifacts is not None and (options.artifacts / step.artifact).is_file():
            return options.artifacts / step.artifact, True
        stand_in = folder / Path(step.artifact).name
        stand_in.touch()
        return stand_in, False

    image = matrix.images.get(MAINTENANCE)
    rehearsal = Rehearsal(
        reach=reach,
        find_file=find_file,
        url=_SERVED_AT,
        clock=clock,
        image=image.artifact if image is not None else "",
        way=cast("BootWay", options.way),
    )
    with permit.close_gate("this is a dry run"):
        try:
            return await rehearsal.record(plan, inventory)
        finally:
            await transport.close()


def _show(recorded: PlanRequests) -> None:
    table = Table("#", "step", "BMC", "method", "path", "body", title="Requests of the plan")
    for step in recorded.steps:
        number = str(step.number)
        first = Text(f"{step.title}: {step.reason}")
        if not step.requests:
            table.add_row(number, first, step.means, "-", Text(step.detail), "-")
        for index, request in enumerate(step.requests):
            body = request.upload.model_dump(mode="json") if request.upload else request.body
            table.add_row(
                number,
                "" if index else first,
                Text(request.bmc),
                request.method,
                Text(request.path),
                Text(json.dumps(body)),
            )
    console = open_console()
    console.print(table)
    if recorded.refused is not None:
        refused = recorded.refused
        typer.echo(f"refused: {refused.reason}: {refused.detail}. {refused.unblock}", err=True)
