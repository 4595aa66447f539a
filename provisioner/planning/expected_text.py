"""The expected-hardware list from its YAML text; one clear error for anything that does not fit."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from pydantic import ValidationError

from provisioner.model.expected import Expected, ExpectedNode
from provisioner.planning.located_yaml import Located, Path, load


def parse(source: str, text: str) -> Expected:
    """Read and check one list. Raises InputError with file, line, field and remedy."""
    located = load(source, text)
    if not isinstance(located.tree, dict):
        raise located.error((), "this is not a list of expected hardware", "Begin with `nodes:`.")
    try:
        expected = Expected.model_validate(located.tree)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        path: Path = tuple(p for p in first["loc"] if isinstance(p, str | int))
        raise located.error(path, first["msg"], "See docs/intake.md for the fields.") from None
    _unique(located, [(("nodes", i, "name"), n.name) for i, n in enumerate(expected.nodes)])
    serials: list[tuple[Path, str]]
    serials = [(("nodes", i, "bmc"), n.bmc.serial) for i, n in enumerate(expected.nodes)]
    serials += [
        (("nodes", i, "dpus", j), d.serial)
        for i, n in enumerate(expected.nodes)
        for j, d in enumerate(n.dpus)
    ]
    _unique(located, serials)
    _unique(
        located,
        [
            (("nodes", i, "ports", j), f"{p.switch}/{p.interface}")
            for i, n in enumerate(expected.nodes)
            for j, p in enumerate(n.ports)
        ],
    )
    for i, node in enumerate(expected.nodes):
        _check_node(located, ("nodes", i), node, {n.name for n in expected.nodes})
    _unique(located, [(("tenants", i), t.vrf) for i, t in enumerate(expected.tenants)])
    return expected


def _unique(located: Located, values: Iterable[tuple[Path, str]]) -> None:
    seen: dict[str, Path] = {}
    for path, value in values:
        if value and value in seen:
            first = located.where(seen[value])[1]
            raise located.error(path, f"{value!r} stands here a second time", f"See {first}.")
        seen[value] = path


def _check_node(located: Located, path: Path, node: ExpectedNode, names: set[str]) -> None:
    for j, port in enumerate(node.ports):
        if port.switch not in names:
            raise located.error(
                (*path, "ports", j, "switch"),
                f"there is no switch {port.switch!r} on this list",
                "Add the switch as a node of kind `switch`.",
            )
        if port.address:
            try:
                ipaddress.ip_interface(port.address)
            except ValueError:
                raise located.error(
                    (*path, "ports", j, "address"),
                    f"{port.address!r} is not an address with a prefix length",
                    "Write it like 172.0.0.1/31.",
                ) from None
    if node.bmc.url:
        parts = urlsplit(node.bmc.url)
        if parts.scheme != "https" or not parts.hostname or parts.username:
            raise located.error(
                (*path, "bmc", "url"),
                f"{node.bmc.url!r} is not the address of a BMC",
                "Write it like https://10.0.0.9, without credentials.",
            )
