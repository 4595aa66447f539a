"""Filters and sorts the rows of a list here, where the daemon does not."""

from __future__ import annotations

from typing import Any

from provisioner.model.input_error import InputError


def filter_rows(rows: list[dict[str, Any]], where: str, fields: list[str]) -> list[dict[str, Any]]:
    """Return the rows that match an expression. Raises InputError for a wrong one."""
    from provisioner.planning.campaigns.select_expression import parse

    expression = parse(where, fields, "--where")
    return [r for r in rows if expression.matches_facts({f: _facts(r.get(f)) for f in fields})]


def _facts(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(v) for v in value)
    if isinstance(value, bool):
        return ("true" if value else "false",)
    return (str(value),) if value is not None else ()


def sort_rows(rows: list[dict[str, Any]], sort: str, fields: list[str]) -> list[dict[str, Any]]:
    """Sort by a field, or by `-FIELD` with the greatest first."""
    name = sort.removeprefix("-")
    if name not in fields:
        raise InputError("--sort", sort[:60], "no such field", f"Known: {', '.join(fields)}.")

    def order_of(row: dict[str, Any]) -> tuple[bool, Any]:
        value = row.get(name)
        ordered = value if isinstance(value, int | float) else str(value)
        return (isinstance(value, int | float), ordered)

    return sorted(rows, key=order_of, reverse=sort.startswith("-"))
