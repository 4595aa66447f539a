"""`provisioner attest admit-rim`: golden values of a signed CoRIM, for a person to review."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from provisioner.checks.attestation.concise_manifests import (
    SIZE_MAX,
    ConciseValues,
    read_concise,
)
from provisioner.checks.attestation.trust_anchors import TrustStore, read_anchors
from provisioner.cli.options.showing import JsonOption
from provisioner.cli.options.times import parse_time
from provisioner.model.input_error import InputError
from provisioner.model.matrix import AttestedComponents, Reference
from provisioner.runtime.wall_clock import WallClock

_REFUSED = 1
_UNTRIED = "This reader was never tried on a genuine manifest of NVIDIA's: none is public."


def admit_rim(
    file: Annotated[Path, typer.Argument(help="A signed CoRIM (CBOR in COSE).")],
    components: Annotated[str, typer.Option(help="Glob of the roots of trust that it is for.")],
    reviewed: Annotated[str, typer.Option(help="Who reviewed it.")],
    count: Annotated[int, typer.Option(min=1, max=64, help="How many must answer.")] = 1,
    model: Annotated[str, typer.Option(help="Which model, where it names several.")] = "",
    at: Annotated[str, typer.Option(help="When it is admitted: 2026-11-22; otherwise now.")] = "",
    anchor: Annotated[
        list[Path] | None, typer.Option(help="Trust this certificate or key too; repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the golden values of a signed CoRIM, as lines of a profile for review.

    Signature and chain are verified first: a manifest that is not its maker's ends it with exit
    code 1. A person names the roots that it is for; no published rule leads from it to them.

    Example: provisioner attest admit-rim erot.corim --components 'HGX_ERoT_GPU_*' --reviewed jd
    """
    when = parse_time("--at", at) if at else WallClock().now()
    trust = TrustStore()
    for path in anchor or ():
        trust = trust.with_added(_read_anchor(path))
    manifest = read_concise(_read(file), trust.references, when, when)
    chosen = [v for v in manifest.values if v.digests and model in ("", v.model)]
    if len(chosen) != 1:
        reason = "; ".join(str(f) for f in manifest.findings)
        models = ", ".join(sorted({v.model for v in manifest.values}))
        typer.echo(reason if not manifest.values else f"name one --model of: {models}", err=True)
        raise typer.Exit(_REFUSED)
    group = AttestedComponents(
        count=count,
        digests=dict(chosen[0].digests),
        learned_from=f"CoRIM {manifest.rim_id}, {chosen[0].model} {chosen[0].version}; {reviewed}",
        reference=Reference(
            rim="".join(c if c.isalnum() or c in "_.+-" else "_" for c in manifest.rim_id) or "-",
            sha256=manifest.sha256,
            admitted=datetime.fromtimestamp(when, UTC).date().isoformat(),
        ),
    )
    _print(components, group, chosen[0], as_json=as_json)


def _print(
    components: str, group: AttestedComponents, values: ConciseValues, *, as_json: bool
) -> None:
    written: dict[str, Any] = {"count": group.count, **group.model_dump(exclude_defaults=True)}
    written["digests"] = {index: list(accepted) for index, accepted in group.digests.items()}
    rule = {"policy": "record", "components": {components: written}}
    if as_json:
        typer.echo(json.dumps({"attestation": rule, "unnamed": values.unnamed}))
        return
    typer.echo(f"# {_UNTRIED}")
    if values.unnamed:
        typer.echo(f"# {values.unnamed} values are named by no index, and are not used.")
    typer.echo(yaml.safe_dump({"attestation": rule}, sort_keys=False, width=160), nl=False)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(SIZE_MAX + 1)
    except OSError as error:
        remedy = "Name a file that exists and can be read."
        raise InputError("FILE", str(path), error.strerror or "it cannot be read", remedy) from None


def _read_anchor(path: Path) -> tuple[Any, ...]:
    try:
        return read_anchors(_read(path), str(path))
    except (ValueError, TypeError):
        remedy = "Name a PEM file with certificates or one public key."
        raise InputError("--anchor", str(path), "it holds no key", remedy) from None
