"""`provisioner agents`: who is in the maintenance ramdisk, and what a ramdisk must trust."""

from __future__ import annotations

import base64
import json
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.adapters.agent.tls import CERTIFICATE_FILE, open_authority
from provisioner.cli.options.data_options import DataOption, JsonOption, show_table, with_data
from provisioner.model.agent import AgentSession
from provisioner.runtime.site_clock import site_clock
from provisioner.store import lock_data_directory

app = typer.Typer(
    help="Maintenance agents, and the certificate authority that their images trust.",
    no_args_is_help=True,
)


@app.command("list")
def list_(data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """Every node that booted the maintenance ramdisk: its last boot."""
    sessions = with_data(data, lambda opened: opened.store.agent_sessions())
    now = site_clock(data).now()
    if as_json:
        shown = [{**s.model_dump(mode="json"), "state": _state(s, now)} for s in sessions]
        typer.echo(json.dumps({"agents": shown}))
        return
    table = Table("node", "state", "last heartbeat", "version", "listens at", "command", box=None)
    for s in sessions:
        asked = s.asked.name if s.asked is not None and not s.asked.over else ""
        words = (s.node, _state(s, now), _time(s.seen_at), s.version, s.url, asked)
        table.add_row(*map(Text, words))
    show_table(table, "No maintenance agent has called yet.")


@app.command()
def ca(
    data: DataOption = Path("var"),
    kernel: Annotated[
        str, typer.Option(help="This URL and the authority as kernel arguments, instead of PEM.")
    ] = "",
) -> None:
    """The certificate that a ramdisk must trust, to be baked into its image; made if need be."""
    if not (data / CERTIFICATE_FILE).exists():
        with lock_data_directory(data):
            open_authority(data)
    pem = open_authority(data).ca_pem()
    if kernel:
        der = base64.b64encode(ssl.PEM_cert_to_DER_cert(pem)).decode()
        typer.echo(f"ipa-api-url={kernel} provisioner-ca={der}")
    else:
        typer.echo(pem, nl=False)


def _state(session: AgentSession, now: float) -> str:
    """In a word; whether an agent is silent, only its daemon can say."""
    if session.dismissed:
        return "dismissed"
    if session.seen_at:
        return "up"
    if now > session.until:
        return "never came"
    return "looked up" if session.peer else "expected"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S") if at else ""
