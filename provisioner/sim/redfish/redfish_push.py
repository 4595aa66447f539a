"""The bodies that carry images: multipart forms, and the parameters beside the file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.sim.redfish.redfish_answers import Answer, Json, make_error
from provisioner.sim.redfish.shape import Shape


@dataclass(frozen=True)
class Part:
    """One part of a multipart/form-data body."""

    name: str
    kind: str  # Content-Type, "" if absent
    data: bytes
    file_name: str = ""


@dataclass(frozen=True)
class Push:
    """An image and its sender's parameters."""

    data: bytes
    targets: tuple[str, ...] = ()
    force: bool = False
    apply_time: str = "Immediate"


def parse_multipart(headers: Mapping[str, str], body: bytes) -> list[Part] | None:
    """The parts in order; None if the body contradicts its Content-Type (RFC 7578)."""
    boundary_match = re.match(
        r'multipart/form-data\s*;.*?boundary="?([^";]+)"?',
        headers.get("content-type", ""),
        re.IGNORECASE,
    )
    if not boundary_match:
        return None
    mark = b"--" + boundary_match.group(1).encode()
    if mark + b"--" not in body:
        return None
    parts = []
    for piece in (b"\r\n" + body).split(b"\r\n" + mark)[1:]:
        if piece.startswith(b"--"):
            break
        head, blank, data = piece.partition(b"\r\n\r\n")
        if not blank:
            return None
        head_text = head.decode("latin-1")
        name = re.search(r'[;\s]name="?([^";\r\n]+)"?', head_text)
        kind = re.search(r"^content-type:\s*([^\r\n]+)", head_text, re.IGNORECASE | re.MULTILINE)
        file = re.search(r'[;\s]filename="?([^";\r\n]+)"?', head_text)
        if not name:
            return None
        file_name = file.group(1) if file else ""
        parts.append(Part(name.group(1), kind.group(1).strip() if kind else "", data, file_name))
    return parts


def read_push(headers: Mapping[str, str], body: bytes, shape: Shape) -> Push | Answer:
    """Return the push in a multipart body, or the refusal, by the vendor's own rules."""
    parts = parse_multipart(headers, body)
    if parts is None:
        return make_error(415, "UnsupportedMediaType")
    by_name = {p.name: p for p in parts}
    if "UpdateFile" not in by_name:
        return make_error(400, "PropertyMissing", "UpdateFile")
    file = by_name["UpdateFile"]
    if " " in file.file_name and not shape.file_name_blanks:
        return make_error(500, "InternalError")
    if shape.bmcweb and file.kind != "application/octet-stream":
        return make_error(415, "UnsupportedMediaType")
    try:
        parameters = json.loads(by_name["UpdateParameters"].data or b"{}")
    except KeyError:
        parameters = {}
    except (ValueError, RecursionError):
        return make_error(400, "MalformedJSON")
    if not isinstance(parameters, dict):
        return make_error(400, "MalformedJSON")
    targets = parameters.get("Targets") or []
    if not isinstance(targets, list) or not all(isinstance(t, str) for t in targets):
        return make_error(400, "PropertyValueTypeError", str(targets), "Targets")
    if (refusal := _refuse(parameters, targets, shape)) is not None:
        return refusal
    when = parameters.get("@Redfish.OperationApplyTime", "Immediate")
    if shape.apply_times and when not in shape.apply_times:
        return make_error(400, "PropertyValueNotInList", str(when), "@Redfish.OperationApplyTime")
    return Push(file.data, tuple(targets), parameters.get("ForceUpdate") is True, str(when))


def _refuse(parameters: Json, targets: list[str], shape: Shape) -> Answer | None:
    """Return what a vendor answers to parameters that it documents otherwise; the keys are ours."""
    if shape.needs_oem and "Oem" not in parameters:
        return make_error(400, "PropertyMissing", "Oem", prop="Oem")
    if not shape.takes_targets and any("backup" not in t.lower() for t in targets):
        return make_error(400, "PropertyValueNotInList", str(targets), "Targets", prop="Targets")
    return None
