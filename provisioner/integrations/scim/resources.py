"""Users and groups of SCIM (RFC 7643) as this service keeps them: parsed, bounded, shown.

Few attributes are kept, since the less is known of people the less can leak; others are ignored, as
RFC 7644 section 3.3 lets a service do. `active` is never guessed: a word that is neither true nor
false is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from provisioner.model.directory import DirectoryEntry, EntryKind

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Schema"
RESOURCE_TYPE = "urn:ietf:params:scim:schemas:core:2.0:ResourceType"
PROVIDER_CONFIG = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"

TEXT_MAX = 400  # characters of one value
NAME_MAX = 200  # of a userName or displayName; an address has at most 254, and few more than 60
VALUES_MAX = 20  # addresses of one person
MEMBERS_MAX = 4000  # of one group: its body has to fit into a request of 256 KB
RESULTS_MAX = 200  # resources of one page

Body = dict[str, Any]


class ScimError(Exception):
    """A refusal, as RFC 7644 section 3.12 forms it."""

    def __init__(self, status: int, detail: str, scim_type: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail[:300]
        self.scim_type = scim_type

    def render(self) -> Body:
        told = {"schemas": [ERROR], "status": str(self.status), "detail": self.detail}
        return told | ({"scimType": self.scim_type} if self.scim_type else {})


class Resource:
    """What differs between users and groups."""

    def __init__(self, kind: EntryKind) -> None:
        self.kind = kind
        self.name = "User" if kind is EntryKind.PERSON else "Group"
        self.endpoint = f"/{self.name}s"
        self.schema = USER if kind is EntryKind.PERSON else GROUP
        self.named_by = "userName" if kind is EntryKind.PERSON else "displayName"
        self.lists: dict[str, tuple[str, ...]] = {"emails": ("value", "type", "primary")}
        self.texts: tuple[str, ...] = ("userName", "externalId", "displayName")
        self.complex: dict[str, tuple[str, ...]] = {
            "name": ("formatted", "familyName", "givenName")
        }
        if kind is EntryKind.GROUP:
            self.lists = {"members": ("value",)}
            self.texts = ("displayName", "externalId")
            self.complex = {}
        self.flags: tuple[str, ...] = ("active",) if kind is EntryKind.PERSON else ()
        names = (*self.texts, *self.complex, *self.lists, *self.flags)
        self._spelled: dict[str, str] = {name.lower(): name for name in names}

    def spell(self, name: str) -> str:
        """Return the attribute's name as the schema has it; "" for one that is not kept.

        Names are compared without case, and may have the schema in front (RFC 7644 section 3.10).
        """
        prefix = f"{self.schema}:".lower()
        return self._spelled.get(name.lower().removeprefix(prefix), "")

    def parse(self, raw: Mapping[str, Any]) -> Body:
        """Return the kept attributes of a resource. Raises ScimError."""
        body: Body = {}
        for key, value in raw.items():
            name = self.spell(key)
            if not name or value is None:
                continue
            if name in body:
                raise ScimError(400, f"{name} is given twice", "invalidSyntax")
            body[name] = self.parse_value(name, value)
        required = body.get(self.named_by)
        if not required:
            raise ScimError(400, f"{self.named_by} is required", "invalidValue")
        if len(required) > NAME_MAX:
            raise ScimError(400, f"{self.named_by} is too long", "invalidValue")
        return {name: value for name, value in body.items() if value not in ("", [], {})}

    def parse_value(self, name: str, value: Any) -> Any:
        """Return the value of an attribute of this name. Raises ScimError."""
        if name in self.flags:
            return parse_flag(name, value)
        if name in self.texts:
            return parse_text(name, value)
        if name in self.complex:
            return self._parse_object(name, value, self.complex[name])
        items = value if isinstance(value, list) else [value]
        most = MEMBERS_MAX if name == "members" else VALUES_MAX
        if len(items) > most:
            raise ScimError(400, f"{name} has more than {most} values", "tooMany")
        found: dict[str, Body] = {}
        for item in items:
            parsed = self._parse_object(name, item, self.lists[name])
            if not parsed.get("value"):
                raise ScimError(400, f"a value of {name} has no `value`", "invalidValue")
            key = str(parsed.get("type", "")) + "\n" + parsed["value"]
            found[parsed["value"] if name == "members" else key] = parsed
        return list(found.values())

    def _parse_object(self, name: str, value: Any, subs: Iterable[str]) -> Body:
        if not isinstance(value, dict):
            raise ScimError(400, f"{name} has to be an object", "invalidValue")
        spelled = {sub.lower(): sub for sub in subs}
        found = {}
        for key, one in value.items():
            sub = spelled.get(key.lower(), "")
            if not sub or one is None:
                continue
            place = f"{name}.{sub}"
            found[sub] = parse_flag(place, one) if sub == "primary" else parse_text(place, one)
        return found

    def find_names(self, body: Body) -> tuple[str, ...]:
        """Return the names by which a person may come here, in lower case."""
        if self.kind is EntryKind.GROUP:
            return ()
        addresses = [email["value"] for email in body.get("emails", [])]
        found = (body["userName"], body.get("externalId", ""), *addresses)
        return tuple(dict.fromkeys(name.casefold() for name in found if name))

    def show(self, entry: DirectoryEntry, base: str, groups: Iterable[DirectoryEntry]) -> Body:
        """Return the resource as a client gets it. `groups`: those of a person."""
        told: Body = {"schemas": [self.schema], "id": entry.id} | entry.body
        if self.kind is EntryKind.PERSON:
            theirs = [
                {
                    "value": g.id,
                    "$ref": f"{base}/Groups/{g.id}",
                    "display": g.name,
                    "type": "direct",
                }
                for g in groups
            ]
            told |= {"groups": theirs} if theirs else {}
        told["meta"] = {
            "resourceType": self.name,
            "created": _stamp(entry.made_at),
            "lastModified": _stamp(entry.changed_at),
            "location": f"{base}{self.endpoint}/{entry.id}",
            "version": find_version(entry),
        }
        return told


USERS = Resource(EntryKind.PERSON)
GROUPS = Resource(EntryKind.GROUP)


def find_version(entry: DirectoryEntry) -> str:
    return f'W/"{entry.generation}"'


def parse_flag(name: str, value: Any) -> bool:
    """Return a boolean. Entra ID sends it as text too ("False"). Raises ScimError."""
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word not in ("true", "false"):
        raise ScimError(400, f"{name} is neither true nor false", "invalidValue")
    return word == "true"


def parse_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise ScimError(400, f"{name} has to be a text of {TEXT_MAX} characters", "invalidValue")
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in value):
        raise ScimError(400, f"{name} has control characters", "invalidValue")
    return value.strip()


def read_document(raw: bytes) -> Body:
    """Return the JSON object of a request. Raises ScimError."""

    def collect(pairs: list[tuple[str, Any]]) -> Body:
        found: Body = {}
        lower: set[str] = set()
        for key, value in pairs:
            if key.lower() in lower:  # names are compared without case: which one would count?
                raise ValueError(f"{key[:60]} is there twice")
            lower.add(key.lower())
            found[key] = value
        return found

    try:
        document = json.loads(raw, object_pairs_hook=collect)
    except (ValueError, RecursionError) as error:
        raise ScimError(400, f"the body is no JSON: {error}"[:200], "invalidSyntax") from None
    if not isinstance(document, dict):
        raise ScimError(400, "the body has to be an object", "invalidSyntax")
    return document


def select_attributes(told: Body, wanted: str, unwanted: str) -> Body:
    """Return a resource with some attributes only (RFC 7644 section 3.9)."""
    always = {"schemas", "id"}
    if wanted:
        paths = _split_paths(wanted)
        kept = {k: _select(v, paths[k.lower()]) for k, v in told.items() if k.lower() in paths}
        return {k: told[k] for k in told if k in always} | kept
    if not unwanted:
        return told
    paths = _split_paths(unwanted)
    found = {}
    for key, value in told.items():
        subs = paths.get(key.lower())
        if key in always or subs is None:
            found[key] = value
        elif subs and isinstance(value, dict):
            found[key] = {k: v for k, v in value.items() if k.lower() not in subs}
    return found


def _split_paths(text: str) -> dict[str, set[str]]:
    """Return top attributes in lower case with the sub-attributes that are named; none: all."""
    found: dict[str, set[str]] = {}
    for path in text.split(",")[:100]:
        name, _, sub = path.strip().rpartition(":")[2].lower().partition(".")
        before = found.get(name)
        if not sub or before == set():
            found[name] = set()
        else:
            found[name] = (before or set()) | {sub}
    return found


def _select(value: Any, subs: set[str]) -> Any:
    if not subs:
        return value
    if isinstance(value, list):
        return [_select(item, subs) for item in value]
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if k.lower() in subs}
    return value


def _stamp(at: float) -> str:
    return (
        datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
