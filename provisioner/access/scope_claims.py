"""Roles that a provider claims for a person, each with the scope that the claim names.

`operator` is for the whole site. `operator@rack=su0-*,tenant=red` is for nodes of the tenant red in
these racks; names of one noun are alternatives. Several claims of one role add up. Rule: a
scope that cannot be read gives no role, since the rest of the claim would be too much.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from pydantic import ValidationError

from provisioner.model.access import SCOPED, Bound, Role, Scope

log = logging.getLogger(__name__)

FIELDS = {"rack": "racks", "release": "releases", "tenant": "tenants"}


def read_claims(claimed: frozenset[str]) -> tuple[frozenset[Role], tuple[Bound, ...]]:
    """Return the roles of these claims, and the scopes of those that are for a part of the site."""
    whole: set[Role] = set()
    bounds: list[Bound] = []
    for claim in sorted(claimed):
        name, at, text = claim.partition("@")
        role = next((r for r in Role if r.value == name), None)
        if role is None:
            continue
        if not at:
            whole.add(role)
            continue
        scope = read_scope(text) if role in SCOPED else None
        if scope is None:
            log.warning("a claim of %s gives no role: its scope cannot be read", role.value)
        else:
            bounds.append(Bound(role=role, scope=scope))
    kept = tuple(b for b in bounds if b.role not in whole)
    return frozenset(whole | {b.role for b in kept}), kept


def read_scope(text: str) -> Scope | None:
    """Return the scope of "rack=su0-*,tenant=red"; None: it names no part of a site."""
    lists: defaultdict[str, list[str]] = defaultdict(list)
    for word in text.split(","):
        noun, _, glob = word.partition("=")
        if noun not in FIELDS:
            return None
        lists[FIELDS[noun]].append(glob)
    try:
        return Scope.model_validate(dict(lists))
    except ValidationError:
        return None
