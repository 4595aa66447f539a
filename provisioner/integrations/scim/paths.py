"""Filters (RFC 7644 section 3.4.2.2) and changes by PATCH (section 3.5.2), on plain JSON.

Filters are comparisons by `eq` and `pr` that are joined by `and`: what Entra ID and Okta ask. Any
other filter is refused, never answered as if it had matched nothing.

Forms of PATCH that were read in the providers' own documents: operations in any case ("Replace");
`active` as text; an object without a path whose keys are paths; members to remove in `value`
(learn.microsoft.com/entra/identity/app-provisioning/use-scim-to-provision-users-and-groups,
developer.okta.com/docs/api/openapi/okta-scim/guides/scim-20).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.integrations.scim.resources import Body, Resource, ScimError, parse_flag

OPERATIONS_MAX = 1000
PATH_MAX = 500  # characters of a path or filter
_ATTRIBUTE = r"(?:urn:[\w.:-]+:)?[A-Za-z][\w-]*(?:\.[A-Za-z$][\w-]*)?"
_TERM = re.compile(
    rf"\s*(?P<path>{_ATTRIBUTE})(?:\[(?P<inner>[^\[\]]*)\](?:\.(?P<sub>\w+))?)?"
    r'\s+(?:(?P<present>pr)|(?P<op>\w+)\s+(?P<value>"(?:[^"\\]|\\.)*"|true|false|null|-?\d+))\s*',
    re.IGNORECASE,
)
_AND = re.compile(r"and\s+", re.IGNORECASE)
_TARGET = re.compile(
    rf"(?P<path>{_ATTRIBUTE})(?:\[(?P<inner>[^\[\]]*)\](?:\.(?P<sub>\w+))?)?", re.IGNORECASE
)


@dataclass(frozen=True)
class Term:
    """One comparison. `value` None: the attribute has any value (`pr`)."""

    name: str  # lower case, without a schema
    sub: str
    inner: tuple[Term, ...]
    value: str | bool | None


def parse_filter(text: str) -> tuple[Term, ...]:
    """Return the comparisons that all have to hold. Raises ScimError."""
    if len(text) > PATH_MAX:
        raise ScimError(400, "the filter is too long", "invalidFilter")
    terms = []
    at = 0
    while True:
        found = _TERM.match(text, at)
        if found is None or (found["op"] and found["op"].lower() != "eq"):
            detail = 'filters are comparisons by eq or pr joined by and: userName eq "ada"'
            raise ScimError(400, detail, "invalidFilter")
        terms.append(_read_term(found))
        at = found.end()
        if at == len(text):
            return tuple(terms)
        joint = _AND.match(text, at)
        if joint is None:
            raise ScimError(400, "filters are joined by and alone", "invalidFilter")
        at = joint.end()


def _read_term(found: re.Match[str]) -> Term:
    name, sub = _split(found["path"])
    value: str | bool | None = None
    if not found["present"]:
        text = found["value"]
        if text.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", text[1:-1])
        else:
            value = text.lower() == "true" if text.lower() in ("true", "false") else text
    inner = parse_filter(found["inner"]) if found["inner"] is not None else ()
    return Term(name, (found["sub"] or sub).lower(), inner, value)


def _split(path: str) -> tuple[str, str]:
    """Return attribute and sub-attribute in lower case; a schema in front is left out."""
    name, _, sub = path.rpartition(":")[2].lower().partition(".")
    return name, sub


EXACT = ("id", "externalid")  # attributes that are compared with case (RFC 7643 section 3.1)


def matches(told: Body, terms: Sequence[Term]) -> bool:
    """Return whether a resource, as it is shown, satisfies every comparison."""
    lower = {key.lower(): value for key, value in told.items()}
    return all(_holds(lower.get(term.name), term) for term in terms)


def _holds(value: Any, term: Term) -> bool:
    if isinstance(value, list):
        items = [item for item in value if matches(item, term.inner)]
        return any(_holds_one(item, term) for item in items)
    return not term.inner and _holds_one(value, term)


def _holds_one(value: Any, term: Term) -> bool:
    if isinstance(value, dict):
        lower = {key.lower(): one for key, one in value.items()}
        value = lower.get(term.sub or "value")
    elif term.sub:
        return False
    if term.value is None:
        return value not in (None, "", [])
    if isinstance(value, bool) or isinstance(term.value, bool):
        word = str(term.value).lower()
        return isinstance(value, bool) and word == str(value).lower()
    if not isinstance(value, str):
        return False
    exact = term.name in EXACT or term.sub in EXACT
    return value == term.value if exact else value.casefold() == term.value.casefold()


# ------------------------------------------------------------------------------
# Changes by PATCH.


def apply_patch(resource: Resource, body: Body, document: Body) -> Body:
    """Return the attributes after all operations; none is made if one is refused."""
    lower = {key.lower(): value for key, value in document.items()}
    operations = lower.get("operations")
    if not isinstance(operations, list) or not operations:
        raise ScimError(400, "Operations are missing", "invalidSyntax")
    if len(operations) > OPERATIONS_MAX:
        raise ScimError(400, f"more than {OPERATIONS_MAX} operations", "tooMany")
    changed = dict(body)
    for operation in operations:
        _apply(resource, changed, operation)
    return changed


def _apply(resource: Resource, body: Body, operation: Any) -> None:
    fields = (
        {key.lower(): value for key, value in operation.items()}
        if isinstance(operation, dict)
        else {}
    )
    op = str(fields.get("op", "")).lower()
    if op not in ("add", "replace", "remove"):
        raise ScimError(400, "an operation is add, replace or remove", "invalidSyntax")
    path = fields.get("path")
    value = fields.get("value")
    if path is not None and not isinstance(path, str):
        raise ScimError(400, "a path is a text", "invalidPath")
    if path:
        _change(resource, body, op, path, value, named=True)
        return
    if op == "remove":
        raise ScimError(400, "what to remove is not named", "noTarget")
    if not isinstance(value, dict):
        raise ScimError(400, "without a path the value is an object", "invalidValue")
    for key, one in value.items():
        _change(resource, body, op, key, one, named=False)


def _change(resource: Resource, body: Body, op: str, path: str, value: Any, *, named: bool) -> None:
    """Change one target. `named`: by the path of the operation, not by a key of its value."""
    found = _TARGET.fullmatch(path.strip()) if len(path) <= PATH_MAX else None
    if found is None:
        if named:
            raise ScimError(400, f"this is no path: {path[:60]}", "invalidPath")
        return  # the key of an extension that is not kept
    name, sub = _split(found["path"])
    whole = found["path"].lower()
    if named and name in ("id", "schemas", "meta", "groups") and ":" not in whole:
        raise ScimError(400, f"{name} is read-only", "mutability")
    schema = found["path"].rpartition(":")[0].lower()
    spelled = "" if schema and schema != resource.schema.lower() else resource.spell(name)
    if not spelled:
        return  # an attribute that is not kept
    sub = (found["sub"] or sub).lower()
    op = "remove" if value is None and not found["inner"] else op
    if spelled in resource.lists:
        terms = parse_filter(found["inner"]) if found["inner"] else ()
        _change_list(resource, body, op, spelled, (terms, sub), value)
    elif found["inner"]:
        raise ScimError(400, f"{spelled} has no values to choose from", "invalidPath")
    elif spelled in resource.complex:
        _change_object(resource, body, op, spelled, sub, value)
    elif sub:
        raise ScimError(400, f"{spelled} has no parts", "invalidPath")
    elif op == "remove":
        if spelled == resource.named_by:
            raise ScimError(400, f"{spelled} is required", "mutability")
        body.pop(spelled, None)
    else:
        body[spelled] = resource.parse_value(spelled, value)


def _change_object(
    resource: Resource, body: Body, op: str, name: str, sub: str, value: Any
) -> None:
    before = body.get(name, {})
    subs = {each.lower(): each for each in resource.complex[name]}
    if op == "remove":
        kept = {k: v for k, v in before.items() if sub and k.lower() != sub}
        body[name] = kept
        return
    if sub and sub not in subs:
        return
    body[name] = before | resource.parse_value(name, {subs[sub]: value} if sub else value)


def _change_list(
    resource: Resource,
    body: Body,
    op: str,
    name: str,
    target: tuple[tuple[Term, ...], str],
    value: Any,
) -> None:
    terms, sub = target
    before: list[Body] = body.get(name, [])
    if not terms and not sub:
        body[name] = _join_lists(resource, op, name, before, value)
        return
    chosen = [item for item in before if matches(item, terms)]
    if op == "remove":
        rest = [item for item in before if item not in chosen]
        if sub and sub != "value":
            rest = [
                {k: v for k, v in item.items() if item not in chosen or k.lower() != sub}
                for item in before
            ]
        body[name] = rest
        return
    given = {sub: value} if sub else value
    if not isinstance(given, dict):
        raise ScimError(400, f"a value of {name} has to be an object", "invalidValue")
    if not chosen:  # Entra ID replaces addresses that a person does not have yet
        if name == "members":
            raise ScimError(400, "no member is chosen by this path", "noTarget")
        fixed = {t.sub or t.name: t.value for t in terms if t.value is not None and not t.inner}
        body[name] = resource.parse_value(name, [*before, fixed | given])
        return
    changed = [item | _spell_all(given, resource.lists[name]) for item in chosen]
    rest = [item for item in before if item not in chosen]
    body[name] = resource.parse_value(name, [*rest, *changed])


def _spell_all(given: Body, subs: Sequence[str]) -> Body:
    spelled = {sub.lower(): sub for sub in subs}
    return {spelled[key.lower()]: one for key, one in given.items() if key.lower() in spelled}


def _join_lists(
    resource: Resource, op: str, name: str, before: list[Body], value: Any
) -> list[Body]:
    if op == "remove" and value is None:
        return []
    given: list[Body] = resource.parse_value(name, value)
    if op == "replace":
        return given
    values = {item["value"] for item in given}
    if op == "remove":
        return [item for item in before if item["value"] not in values]
    kept = [item for item in before if item["value"] not in values]
    return list(_as_primary(resource.parse_value(name, [*kept, *given]), given))


def _as_primary(items: list[Body], given: list[Body]) -> Iterator[Body]:
    """Only one value of a list is primary: the one that was given last (RFC 7643 section 2.4)."""
    is_new = any(parse_flag("primary", item.get("primary", False)) for item in given)
    for item in items:
        if is_new and item.get("primary") and item not in given:
            yield {key: one for key, one in item.items() if key != "primary"}
        else:
            yield item
