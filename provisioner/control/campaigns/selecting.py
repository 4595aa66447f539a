"""Selects nodes by an expression, reading only what it asks for: the same for all who ask."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from provisioner.model.campaign import CampaignRow
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, State
from provisioner.planning.campaigns.fleet_fields import (
    ABOUT_FIELDS,
    FleetRecords,
    FleetVersions,
    Reading,
    needs_records,
    needs_versions,
)
from provisioner.planning.campaigns.select_expression import Expression, parse, pick
from provisioner.store.repositories.campaigns import SqlCampaignRepository
from provisioner.store.repositories.cases import SqlCaseRepository
from provisioner.store.sql_store import SqlStore

_WILD = re.compile(r"[*?\[\]]+")


async def select_nodes(
    text: str,
    nodes: Iterable[Node],
    store: SqlStore,
    matrix: Matrix,
    now: float,
    source: str = "--select",
) -> tuple[Node, ...]:
    """Return the nodes of the fleet that an expression selects. Raises InputError."""
    expression = parse(text, ABOUT_FIELDS, source)
    return pick(expression, nodes, (await begin_reading(expression, store, matrix, now)).read)


async def find_selected(
    text: str, nodes: Sequence[Node], store: SqlStore, matrix: Matrix, now: float
) -> tuple[Node, ...]:
    """Return the nodes of a campaign; retired ones belong to none. Raises InputError."""
    living = [n for n in nodes if n.state is not State.RETIRED]
    return await select_nodes(text, living, store, matrix, now)


async def begin_reading(
    expression: Expression,
    store: SqlStore,
    matrix: Matrix,
    now: float,
    names: Collection[str] | None = None,
) -> Reading:
    """Return what reads the expression's fields of nodes; `names`: of these alone."""
    fields = expression.fields
    if not needs_records(expression):
        return Reading(fields, FleetRecords(), matrix, now)
    serials, models = await _read_parts(expression, store, names)
    records = FleetRecords(
        versions=(
            FleetVersions(*await store.evidence.list_versions(names))
            if needs_versions(fields)
            else FleetVersions({}, {})
        ),
        serials=serials,
        models=models,
        cases=await _read_cases(store.cases) if "case" in fields else {},
        alerts=await _read_alerts(store) if "alert" in fields else {},
        under_way=(
            await list_under_way(store.campaigns)
            if "campaign" in fields or needs_versions(fields)
            else {}
        ),
        pins=await store.campaigns.list_pins() if needs_versions(fields) else (),
    )
    return Reading(fields, records, matrix, now)


async def list_under_way(book: SqlCampaignRepository) -> Mapping[str, tuple[CampaignRow, str]]:
    """Return the nodes of active campaigns, with their row and the campaign's target."""
    targets = {c.id: c.target for c in await book.list()}
    return {r.node: (r, targets[r.campaign]) for r in await book.list_active_rows()}


async def _read_cases(book: SqlCaseRepository) -> Mapping[str, tuple[str, ...]]:
    return {case.node: (case.id,) for case in await book.list_open()}


async def _read_alerts(store: SqlStore) -> Mapping[str, tuple[str, ...]]:
    pairs = sorted({(a.node, a.id) for a in await store.alerts.list() if a.active})
    return {node: tuple(name for _, name in group) for node, group in groupby(pairs, itemgetter(0))}


async def _read_parts(
    expression: Expression, store: SqlStore, names: Collection[str] | None
) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]:
    """Return serials and models of nodes that may match: others match no pattern of them."""
    asked = expression.patterns
    serials = {find_literal(p) for p in asked.get("serial", ())}
    models = {find_literal(p) for p in asked.get("model", ())}
    if not (serials or models):
        return {}, {}
    found = await store.evidence.list_parts(names, serials, models)
    return (
        {
            node: tuple(line.partition("\t")[0] for line in lines)
            for node, (lines, _) in found.items()
        },
        {node: kept for node, (_, kept) in found.items()},
    )


def find_literal(pattern: str) -> str:
    """Return the longest text that whatever matches a pattern has in it."""
    if "[" in pattern:
        pattern = re.sub(r"\[.*", "*", pattern)
    return max(_WILD.split(pattern), key=len)
