"""`provisioner attest admit`: golden values from witness nodes, as lines for a person to review.

Nothing is stored: the lines take effect once a person has put them into the matrix.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from provisioner.checks import secure_boot
from provisioner.checks.attestation.boot_databases import BootState, read_boot_states
from provisioner.checks.attestation.trust_anchors import read_anchors
from provisioner.checks.check import Unreadable
from provisioner.cli.options.showing import JsonOption
from provisioner.model.attestation import Unacceptable
from provisioner.model.health import Evidence
from provisioner.model.input_error import InputError
from provisioner.model.matrix import TrustedMaker
from provisioner.planning.certification.attested_state import parse_evidence
from provisioner.planning.certification.witnessed_values import (
    Witnessed,
    WitnessedGroup,
    collect_devices,
    collect_witnessed,
)

SIZE_MAX = 32 * 1024 * 1024  # as of stored evidence
_REFUSED = 1


def admit(
    files: Annotated[
        list[Path],
        typer.Argument(help="Stored evidence of witness nodes."),
    ],
    witness: Annotated[str, typer.Option(help="Which node, when, and who reviewed it.")],
    components: Annotated[
        list[str] | None, typer.Option(help="Glob of names of roots of trust; repeatable.")
    ] = None,
    maker: Annotated[
        list[Path] | None, typer.Option(help="Trust this maker's certificate or key; repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the golden values of witness nodes, as lines of a profile for review.

    Every answer is verified first: one that is not new, not genuine or not signed ends it with exit
    code 1. An index whose value changed between two questions is left out.

    Example: provisioner attest admit first.json second.json --witness 'su0-n01, 2026-11-22'
    """
    questions = [_read_outputs(path) for path in files]
    makers = tuple(m for path in maker or () for m in _read_makers(path))
    try:
        asked = [q for q in questions if "measurements" in q]
        witnessed = collect_witnessed(asked, components or (), makers)
        devices, refused = collect_devices(questions, makers)
        witnessed = witnessed.model_copy(update={"refusals": (*witnessed.refusals, *refused)})
        states = [s for q in questions for s in _read_states(q)]
    except (Unreadable, Unacceptable) as problem:
        remedy = "Give the evidence as the daemon stored it."
        raise InputError("FILE", ", ".join(map(str, files))[:200], str(problem), remedy) from None
    if not (witnessed.groups or devices or witnessed.refusals or states):
        remedy = "Record the attestation of a witness node first (`policy: record`)."
        names = ", ".join(map(str, files))[:200]
        raise InputError("FILE", names, "no device answers in it", remedy)
    for name, reason in witnessed.refusals:
        typer.echo(f"{name}: {reason}", err=True)
    rule = _write_rule(witnessed, states, makers, witness)
    if not witnessed.refusals:
        for name, group in devices.items():
            rule[name] = {"policy": "record", **_write_group(group, witness)}
            rule.setdefault("makers", [m.model_dump(mode="json") for m in makers])
    named = [group.model_copy(update={"pattern": name}) for name, group in devices.items()]
    witnessed = witnessed.model_copy(update={"groups": (*witnessed.groups, *named)})
    if as_json:
        groups = [group.model_dump(mode="json") for group in witnessed.groups]
        typer.echo(json.dumps({"attestation": rule, "groups": groups}))
    else:
        for line in _list_remarks(witnessed):
            typer.echo(f"# {line}")
        typer.echo(yaml.safe_dump({"attestation": rule}, sort_keys=False, width=160), nl=False)
    raise typer.Exit(_REFUSED if witnessed.refusals else 0)


def _write_rule(
    witnessed: Witnessed, states: list[BootState], makers: tuple[TrustedMaker, ...], witness: str
) -> dict[str, Any]:
    """Return the lines of a profile. They record only: a person decides when to require."""
    rule: dict[str, Any] = {}
    if witnessed.groups and not witnessed.refusals:
        rule = {
            "policy": "record",
            "components": {
                group.pattern: _write_group(group, witness)
                for group in witnessed.groups
                if group.digests
            },
        }
        if makers:
            rule["makers"] = [m.model_dump(mode="json") for m in makers]
    if states:
        names = sorted({name for state in states for name in state.databases})
        rule["secure_boot"] = {
            "policy": "record",
            "state": "on",
            "databases": {
                n: sorted({s.databases[n].sha256 for s in states if n in s.databases})
                for n in names
            },
        }
    return rule


def _write_group(group: WitnessedGroup, witness: str) -> dict[str, Any]:
    rule = group.write_rule(witness).model_dump(mode="json", exclude_defaults=True)
    rule["digests"] = {index: list(values) for index, values in group.digests.items()}
    return {"count": len(group.roots), **rule}


def _list_remarks(witnessed: Witnessed) -> list[str]:
    """Return what the reviewer must know about each group."""
    remarks = ["Review these values; then put them into the profile of the matrix."]
    for group in witnessed.groups:
        line = f"{group.pattern}: {len(group.roots)} roots, {len(group.digests)} indices"
        if group.counting:
            line += f"; left out, since they changed between questions: {_join(group.counting)}"
        if group.individual:
            line += f"; left out, since each root has its own: {_join(group.individual)}"
        if group.questions < 2:
            line += "; asked once, so that an index that counts boots is not recognised"
        remarks.append(line)
    return remarks


def _join(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(n) for n in numbers)


def _read_states(outputs: Mapping[str, Evidence]) -> tuple[BootState, ...]:
    evidence = outputs.get(secure_boot.COMMAND.name)
    return read_boot_states(evidence.text) if evidence is not None else ()


def _read_outputs(path: Path) -> Mapping[str, Evidence]:
    """Return outputs by command name: stored evidence, or the answer of `node attestation`."""
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_MAX + 1)
        document = json.loads(raw) if len(raw) <= SIZE_MAX else None
    except OSError as error:
        remedy = "Name a file that exists and can be read."
        raise InputError("FILE", str(path), error.strerror or "it cannot be read", remedy) from None
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and isinstance(document.get("evidence"), dict):
        document = document["evidence"]
    outputs = parse_evidence(json.dumps(document)) if isinstance(document, dict) else {}
    if not outputs:
        remedy = "Write it by `provisioner node attestation NODE --evidence -o json`."
        raise InputError("FILE", str(path), "it holds no evidence of a check", remedy)
    return outputs


def _read_makers(path: Path) -> tuple[TrustedMaker, ...]:
    try:
        anchors = read_anchors(path.read_bytes()[:SIZE_MAX], str(path))
    except (OSError, ValueError, TypeError):
        remedy = "Name a PEM file with certificates or one public key."
        raise InputError("--maker", str(path), "it holds no key", remedy) from None
    return tuple(
        TrustedMaker(name=a.name, spki_sha256=a.spki_sha256, source=a.source) for a in anchors
    )
