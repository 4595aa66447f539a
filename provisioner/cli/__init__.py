"""The command line: tables for people, `--json` for machines, exit code 2 for bad input.

One module per noun, each with a typer `app` or plain commands; this file only mounts them.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from provisioner.cli import (
    agents,
    alert,
    api,
    audit,
    bundle,
    campaign,
    case,
    certificate,
    certify,
    checks,
    cohort,
    demo,
    doctor,
    drift,
    explain,
    inspect,
    intake,
    matrix,
    netbox,
    node,
    pin,
    places,
    plan,
    release,
    remote,
    serve,
    sim,
    tenant,
    token,
    watch,
    webhook,
    xid,
)
from provisioner.model.input_error import InputError
from provisioner.ports import PortError, StaleWrite, StoreFailed

app = typer.Typer(
    name="provisioner",
    help="Takes GPU servers from just cabled to safely in a customer's network, and back.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold secrets
)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.command("drift")(drift.drift)
app.command("debt")(drift.debt)
app.command("explain")(explain.explain)
app.command("inspect")(inspect.inspect)
app.command("plan")(plan.plan)
app.command("intake")(intake.intake)
app.command("serve")(serve.serve)
app.command("api")(api.api)
app.command("where")(places.where)
app.command("address")(places.address)
app.command("certify")(certify.certify)
app.command("xid")(xid.xid)
app.add_typer(node.app, name="node")
app.add_typer(agents.app, name="agents")
app.add_typer(case.app, name="case")
app.add_typer(alert.app, name="alert")
app.add_typer(audit.app, name="audit")
app.add_typer(bundle.app, name="bundle")
app.add_typer(checks.app, name="checks")
app.add_typer(campaign.app, name="campaign")
app.add_typer(certificate.app, name="certificate")
app.add_typer(cohort.app, name="cohort")
app.add_typer(matrix.app, name="matrix")
app.add_typer(netbox.app, name="netbox")
app.add_typer(release.app, name="release")
app.add_typer(remote.app, name="remote")
app.add_typer(pin.app, name="pin")
app.add_typer(sim.app, name="sim")
app.add_typer(tenant.app, name="tenant")
app.add_typer(token.app, name="token")
app.add_typer(watch.app, name="watch")
app.add_typer(webhook.app, name="webhook")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"provisioner {version('gpu-provisioner')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """Takes GPU servers from just cabled to safely in a customer's network, and back."""


def main() -> None:
    """Entry point: bad input is one clear line and exit code 2, a failing world exit code 1."""
    try:
        app()
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except (PortError, StaleWrite, StoreFailed) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
