"""A NetBox: reads the objects of some sites, and makes, changes and deletes single objects.

pynetbox is synchronous: a caller with an event loop calls this in a thread. Nothing here decides
(`integrations/inventories/deciding/netbox_mirror.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pynetbox
import requests
from pynetbox.core.query import RequestError

from provisioner.integrations.inventories.deciding.netbox_records import (
    TAG,
    NetBoxChange,
    NetBoxKind,
    NetBoxObject,
    Verb,
)
from provisioner.integrations.inventories.record_service import describe_failure
from provisioner.model.input_error import InputError
from provisioner.model.integrations.partition import is_loopback
from provisioner.ports import Secret
from provisioner.ports.errors import PortError, Unreachable

K = NetBoxKind
CHUNK = 50  # ids in one query: its URL stays below 2,000 characters
REQUEST_S = 60.0
WORDS_MAX = 300  # characters of a refusal's text
TERMINATION = "dcim.interface"
# kind -> (application, endpoint); the naming fields of a new object are in `_body`
ENDPOINTS = {
    K.SITE: ("dcim", "sites"),
    K.MANUFACTURER: ("dcim", "manufacturers"),
    K.DEVICE_TYPE: ("dcim", "device_types"),
    K.ROLE: ("dcim", "device_roles"),
    K.RACK: ("dcim", "racks"),
    K.DEVICE: ("dcim", "devices"),
    K.INTERFACE: ("dcim", "interfaces"),
    K.ADDRESS: ("ipam", "ip_addresses"),
    K.CABLE: ("dcim", "cables"),
    K.MODULE: ("dcim", "modules"),
}
# field of an object -> the kind that its number is of
_TARGETS = {
    "site": K.SITE,
    "role": K.ROLE,
    "device_type": K.DEVICE_TYPE,
    "rack": K.RACK,
    "manufacturer": K.MANUFACTURER,
}


class _Bounded(requests.adapters.HTTPAdapter):
    """Every request has a limit, which pynetbox gives none, and goes to the NetBox itself.

    pynetbox sends its token to whatever `next` an answer names.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._origin = _origin(url)

    # the options are passed on, so that they are not written out again
    def send(  # type: ignore[override]  # see above
        self, request: requests.PreparedRequest, **given: Any
    ) -> requests.Response:
        if _origin(request.url or "") != self._origin:
            raise requests.exceptions.InvalidURL("an answer leads to another place")
        return super().send(request, **{**given, "timeout": REQUEST_S})


class NetBox:
    """One NetBox. Methods raise `PortError`."""

    def __init__(self, url: str, token: Secret, ca_file: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
            remedy = "Say https://; only a loopback address may be plain http."
            raise InputError("--url", url[:200], "a token goes over https only", remedy)
        self._api = pynetbox.api(url, token=token.reveal())
        session = self._api.http_session
        session.trust_env = False  # no proxy and no .netrc: no other host gets the token
        session.max_redirects = 0
        session.verify = ca_file or True
        for scheme in ("https://", "http://"):
            session.mount(scheme, _Bounded(url))
        self._numbers: dict[tuple[K, str], int] = {}
        self._tag = {"name": TAG, "slug": TAG}

    def read(self, sites: Collection[str], addresses: Collection[str]) -> tuple[NetBoxObject, ...]:
        """Read the objects of these sites (slugs), and of these addresses at any site."""
        try:
            objects = tuple(self._read(sites, addresses))
        except (requests.RequestException, RequestError, ValueError) as error:
            raise _failed(error) from None
        self._numbers = {(o.kind, o.key): o.number for o in objects}
        return objects

    def _read(self, sites: Collection[str], addresses: Collection[str]) -> Iterator[NetBoxObject]:
        for kind in (K.SITE, K.MANUFACTURER, K.ROLE):
            for row in self._rows(kind):
                yield _object(kind, row["slug"], row, name=row["name"])
        for row in self._rows(K.DEVICE_TYPE):
            maker = row["manufacturer"]["slug"]
            key = f"{maker}/{row['slug']}"
            yield _object(K.DEVICE_TYPE, key, row, manufacturer=maker, model=row["model"])
        existing = {row["slug"] for row in self._rows(K.SITE)} & set(sites)
        if not existing:
            return
        for row in self._rows(K.RACK, site=sorted(existing)):
            site = row["site"]["slug"]
            yield _object(K.RACK, f"{site}/{row['name']}", row, site=site, name=row["name"])
        devices: dict[int, str] = {}
        for row in self._rows(K.DEVICE, site=sorted(existing)):
            if row.get("name") and "/" not in row["name"]:
                devices[row["id"]] = row["name"]
                yield _device(row)
        yield from self._parts(devices, addresses)

    def _parts(
        self, devices: Mapping[int, str], addresses: Collection[str]
    ) -> Iterator[NetBoxObject]:
        interfaces: dict[int, str] = {}
        ids: set[int] = set()
        for chunk in _chunks(sorted(devices)):
            for row in self._rows(K.INTERFACE, device_id=chunk):
                key = interfaces[row["id"]] = f"{devices[row['device']['id']]}/{row['name']}"
                kind = row["type"]["value"]
                management = str(row["mgmt_only"]).lower()
                yield _object(K.INTERFACE, key, row, type=kind, mgmt_only=management)
            for row in self._rows(K.MODULE, device_id=chunk):
                key = f"{devices[row['device']['id']]}/{row['module_bay']['name']}"
                yield _object(K.MODULE, key, row, serial=row.get("serial") or "")
        cables: dict[int, Mapping[str, Any]] = {}
        rows: dict[int, Mapping[str, Any]] = {}
        for chunk in _chunks(sorted(devices)):
            cables |= {row["id"]: row for row in self._rows(K.CABLE, device_id=chunk)}
            rows |= {row["id"]: row for row in self._rows(K.ADDRESS, device_id=chunk)}
        for chunk in _chunks(sorted(addresses)):
            rows |= {row["id"]: row for row in self._rows(K.ADDRESS, address=chunk)}
        for row in cables.values():
            ends = [_end(row.get(f"{side}_terminations"), interfaces) for side in "ab"]
            if all(ends) and row["id"] not in ids:
                ids.add(row["id"])
                first, second = sorted(ends)
                yield _object(K.CABLE, f"{first}--{second}", row, a=first, b=second)
        for row in rows.values():
            interface = interfaces.get(row.get("assigned_object_id") or 0, "")
            held = row.get("assigned_object_type") == TERMINATION
            yield _object(K.ADDRESS, row["address"], row, interface=interface if held else "")

    def tag(self) -> None:
        """Make our tag if it does not exist."""
        try:
            tag = self._api.extras.tags.get(slug=TAG)
            tag = tag or self._api.extras.tags.create(name=TAG, slug=TAG)
            self._tag = {"name": str(tag.name), "slug": TAG}  # a person may have renamed it
        except (requests.RequestException, RequestError, ValueError) as error:
            raise _failed(error) from None

    def carry_out(self, change: NetBoxChange) -> None:
        """Carry out one change, after `read`. Objects that it refers to must exist."""
        application, endpoint = ENDPOINTS[change.kind]
        endpoint_now = getattr(getattr(self._api, application), endpoint)
        try:
            if change.verb is Verb.DELETE:
                endpoint_now.delete([change.number])
            elif change.verb is Verb.UPDATE:
                endpoint_now.update([{"id": change.number, **self._body(change, new=False)}])
            elif change.verb is Verb.CREATE:
                body = {**self._body(change, new=True), "tags": [self._tag]}
                self._numbers[change.kind, change.key] = endpoint_now.create(body).id
        except (requests.RequestException, RequestError, ValueError) as error:
            raise _failed(error) from None

    def _body(self, change: NetBoxChange, *, new: bool) -> dict[str, Any]:
        """Return the fields in NetBox's form: numbers for references."""
        kind = change.kind
        fields = dict(change.wanted)
        name = change.key.rpartition("/")[2]
        body: dict[str, Any] = {}
        for field, target in _TARGETS.items():
            if field in fields:
                body[field] = self._number(target, fields.pop(field))
        if kind is K.ADDRESS and "interface" in fields:
            body["assigned_object_type"] = TERMINATION
            body["assigned_object_id"] = self._number(K.INTERFACE, fields.pop("interface"))
        if kind is K.CABLE:
            for side in "ab":
                number = self._number(K.INTERFACE, fields.pop(side))
                end = {"object_type": TERMINATION, "object_id": number}
                body[f"{side}_terminations"] = [end]
        if "mgmt_only" in fields:
            body["mgmt_only"] = fields.pop("mgmt_only") == "true"
        if new and kind in (K.SITE, K.MANUFACTURER, K.ROLE, K.DEVICE_TYPE):
            body["slug"] = name
        if new and kind is K.DEVICE:
            body["name"] = change.key
        if new and kind is K.INTERFACE:
            device, _, body["name"] = change.key.partition("/")
            body["device"] = self._number(K.DEVICE, device)
        if new and kind is K.ADDRESS:
            body["address"] = change.key
        return {**body, **fields}

    def _number(self, kind: K, key: str) -> int:
        if (kind, key) not in self._numbers:
            raise PortError(f"the {kind} {key} is not there")
        return self._numbers[kind, key]

    def _rows(self, kind: K, **asked: Sequence[object]) -> Iterator[Mapping[str, Any]]:
        application, endpoint = ENDPOINTS[kind]
        rows_endpoint = getattr(getattr(self._api, application), endpoint)
        for record in rows_endpoint.filter(**asked) if asked else rows_endpoint.all():
            yield dict(record)


def _object(kind: K, key: str, row: Mapping[str, Any], **fields: str) -> NetBoxObject:
    ours = any(tag.get("slug") == TAG for tag in row.get("tags") or [])
    return NetBoxObject(kind=kind, key=key, fields=fields, ours=ours, number=row["id"])


def _device(row: Mapping[str, Any]) -> NetBoxObject:
    kind = row["device_type"]
    site = row["site"]["slug"]
    own = {k: str(v) for k, v in (row.get("custom_fields") or {}).items() if v is not None}
    fields = {
        **own,
        "site": site,
        "role": row["role"]["slug"],
        "device_type": f"{kind['manufacturer']['slug']}/{kind['slug']}",
        "serial": row.get("serial") or "",
        "tenant": row["tenant"]["slug"] if row.get("tenant") else "",
        "status": row["status"]["value"],
        "description": row.get("description") or "",
        "rack": f"{site}/{row['rack']['name']}" if row.get("rack") else "",
    }
    return _object(K.DEVICE, row["name"], row, **fields)


def _end(ends: object, interfaces: Mapping[int, str]) -> str:
    """Return the interface of ours that a cable ends at; "" for several, or for none."""
    if not isinstance(ends, list) or len(ends) != 1:
        return ""
    end = dict(ends[0])
    ours = end.get("object_type") == TERMINATION
    return interfaces.get(end.get("object_id") or 0, "") if ours else ""


def _chunks(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[n : n + CHUNK] for n in range(0, len(items), CHUNK))


def _failed(error: Exception) -> PortError:
    message = getattr(error, "error", None) or str(error)
    line = "".join(c if c.isprintable() else " " for c in str(message))[:WORDS_MAX]
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        return Unreachable(f"NetBox: {describe_failure(error)}", maybe_executed=True)
    return PortError(f"NetBox: {line}")


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
