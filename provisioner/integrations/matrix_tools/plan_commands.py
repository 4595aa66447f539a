"""`provisioner plan`: one node's steps to a release, from files, with no daemon."""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.text import Text

from provisioner import components, quirks
from provisioner.adapters.redfish.dry_run import StandingClock
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.redfish.walk import Walk
from provisioner.cli.options.bmc_options import read_password
from provisioner.cli.options.checked_options import PASSWORD, check_ca, check_pin, check_url
from provisioner.cli.options.matrix_files import read_inventory, read_matrix
from provisioner.cli.options.tables import Table, open_console
from provisioner.execution.plan_requests import DryBmc, PlanRequests, Rehearsal, open_dry_bmc
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import MAINTENANCE, Matrix
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Neighbour, Plan, Step
from provisioner.planning.path import planner
from provisioner.planning.path.profiles import choose_profile
from provisioner.ports import BmcAddress
from provisioner.runtime import permit
from provisioner.settings.maintenance import BootWay

# ------------------------------------------------------------------------------
# `provisioner plan --requests`: the requests of a whole plan, recorded instead of sent.


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


BLOCKED = 1  # exit code: the input is valid, and the node is blocked

Neighbours = Annotated[
    list[str] | None,
    typer.Option(
        "--neighbour",
        metavar="KIND=VERSION",
        help="Version at the other end of the cables, for example switch.os=5.12.1.100.",
    ),
]

Bmcs = Annotated[
    list[str] | None,
    typer.Option(
        "--bmc", metavar="[NAME=]URL", help="With --requests: a BMC of the node; NAME is host."
    ),
]


def plan(
    inventory: Annotated[
        Path, typer.Option(help="Output of `provisioner inspect --json`, or an Inventory as JSON.")
    ],
    release: Annotated[str, typer.Option(help="The target release, by its name in the matrix.")],
    matrix: Annotated[
        list[Path] | None,
        typer.Option(help="Matrix file; repeat it for overlays, which are applied in order."),
    ] = None,
    profile: Annotated[
        str, typer.Option(help="Profile of the node; by default the one that matches.")
    ] = "",
    neighbour: Neighbours = None,
    *,
    lab: Annotated[
        bool,
        typer.Option(
            "--lab", help="Leave unknown pins alone; accept missing evidence, files and digests."
        ),
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    requests: Annotated[
        bool,
        typer.Option("--requests", help="Print each request to the BMCs instead: nothing is sent."),
    ] = False,
    bmc: Bmcs = None,
    user: Annotated[str, typer.Option(help=f"With --requests; the password: {PASSWORD}.")] = "",
    insecure: Annotated[bool, typer.Option("--insecure", help="Accept any certificate.")] = False,
    pin: Annotated[str, typer.Option(help="SHA-256 of the certificate of the only BMC.")] = "",
    ca: Annotated[Path | None, typer.Option(help="File of trusted CAs, PEM.")] = None,
    artifacts: Annotated[
        Path | None, typer.Option(help="Folder of files; others are described by the matrix.")
    ] = None,
    maintenance_boot: Annotated[
        str, typer.Option(help="vendor, virtual_media, http, http_dhcp or pxe: as the setting.")
    ] = "vendor",
) -> None:
    """Print the steps to a release with their reasons, or the blockers with their remedies.

    Exit code 0: a plan, or nothing to do; 1: blocked, refused or in flight; 2: the input is wrong.

    Example: provisioner plan --inventory node.json --release spectrum-x-1.3.0

    Example: provisioner plan --inventory node.json --release spectrum-x-1.3.0 --requests
    --bmc https://10.0.0.11 --user admin
    """
    options = RequestOptions(
        bmc or [], user, pin, ca, artifacts, maintenance_boot, insecure=insecure
    )
    options.check(used=requests)
    pinned = read_matrix(matrix or [])
    observed = read_inventory(inventory)
    result = plan_inventory(
        observed,
        pinned,
        release,
        profile,
        _neighbours(neighbour or []),
        production=not lab,
        way=cast("BootWay", maintenance_boot),
    )
    if requests:
        refused = print_requests(result, observed, pinned, options, table=not json_)
        raise typer.Exit(BLOCKED if refused or result.in_flight else 0)
    if json_:
        whole = result.model_dump(mode="json")
        typer.echo(json.dumps(whole | {"done": result.done}, indent=2))
    else:
        _show_plan(result, observed)
    raise typer.Exit(BLOCKED if result.blockers or result.in_flight else 0)


def plan_inventory(
    seen: Inventory,
    pinned: Matrix,
    release: str,
    profile: str = "",
    neighbours: tuple[Neighbour, ...] = (),
    *,
    production: bool,
    way: BootWay = "vendor",
) -> Plan:
    """Return the plan of one node. Raises InputError for a release or profile that is not there."""
    target = pinned.releases.get(release)
    if target is None:
        names = ", ".join(sorted(pinned.releases))
        raise InputError("--release", "", f"there is no release {release!r}", f"Known: {names}.")
    if profile and profile not in target.profiles:
        names = ", ".join(sorted(target.profiles))
        raise InputError(
            "--profile", "", f"{release} has no profile {profile!r}", f"Known: {names}."
        )
    chosen = profile or choose_profile(seen, target)
    if isinstance(chosen, Blocker):
        return Plan(node=seen.node, release=release, profile="", blockers=(chosen,))
    return planner.plan(
        seen, pinned, release, chosen, neighbours=neighbours, production=production, way=way
    )


def _neighbours(texts: list[str]) -> tuple[Neighbour, ...]:
    """Return each option as one neighbour; an unknown kind is a typing error."""
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


def _show_plan(found: Plan, seen: Inventory) -> None:
    shown = open_console()
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
    """Return cells of a device's text, which is shown as it is and never read as markup."""
    return [Text(value) for value in values]
