"""A cluster to try the operator in: an API server in memory, our API over TLS, the operator.

The API server is kmock's emulator, by Kopf's author (PyPI). What it lacks is added by the published
documentation of Kubernetes' API: uid, generation and creation time, the status subresource that is
written apart, defaults, and schemas that refuse a bad object and an unknown field
(https://kubernetes.io/docs/reference/using-api/api-concepts/,
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/).
A real server drops unknown fields silently; here they are refused, so that a test sees them. Rules
in CEL are not evaluated. No real API server was tried: no package has one.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import jsonschema
import kmock
import kopf
import yaml
from served import Served
from served_tls import serving_tls

from delivery.chart import CHART
from provisioner.integrations.kubernetes.api_client import ApiClient
from provisioner.integrations.kubernetes.operator import Operator, build_settings
from provisioner.integrations.kubernetes.specs import GROUP, VERSION

DEFINITIONS: Mapping[str, Mapping[str, Any]] = {
    text["spec"]["names"]["plural"]: text
    for text in (yaml.safe_load(p.read_text()) for p in (CHART / "resources").glob("*.yaml"))
}
LOOK_S = 0.2


def close_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a structural schema that refuses what a server would drop."""
    closed = dict(schema)
    if "properties" in closed:
        closed["properties"] = {k: close_schema(v) for k, v in closed["properties"].items()}
        if not closed.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    if "items" in closed:
        closed["items"] = close_schema(closed["items"])
    return closed


def find_schema(plural: str) -> Mapping[str, Any]:
    """Return the schema of a kind."""
    [version] = DEFINITIONS[plural]["spec"]["versions"]
    schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def check_part(plural: str, part: str, value: Any) -> None:
    """Refuse a `spec` or a `status` that the schema does not allow, as the server does: 422."""
    schema = close_schema(find_schema(plural)["properties"][part])
    try:
        jsonschema.Draft7Validator(schema).validate(value)
    except jsonschema.ValidationError as error:
        message = f"{part}.{'.'.join(map(str, error.path))}: {error.message}"
        raise kmock.KubernetesError(status=422, reason="Invalid", message=message) from None


def fill_defaults(plural: str, spec: dict[str, Any]) -> None:
    """Add the defaults of a kind's fields."""
    for name, field in find_schema(plural)["properties"]["spec"]["properties"].items():
        if "default" in field:
            spec.setdefault(name, field["default"])


@attrs.define(kw_only=True)
class ApiServer(kmock.KubernetesEmulator):
    """kmock's emulator with what custom resources have besides."""

    _writes: int = attrs.field(default=0, init=False)

    async def _handle(self, request: Any) -> Any:
        kind = request.resource.plural if request.resource is not None else ""
        if kind in DEFINITIONS and request.data:
            try:
                self._prepare(kind, request)
            except kmock.KubernetesError as error:
                return await self._render_error(error)
        return await super()._handle(request)

    def _prepare(self, kind: str, request: Any) -> None:
        data = request.data
        self._writes += 1
        version = str(self._writes)
        if isinstance(data, list):  # a JSON patch (RFC 6902): Kopf's, of finalizers
            standing = self.objects[request.resource, request.namespace, request.name].raw
            place = "/metadata/resourceVersion"
            for step in data:
                same = step.get("value") == standing["metadata"]["resourceVersion"]
                if step["op"] == "test" and step["path"] == place and not same:
                    raise kmock.KubernetesError(status=422, reason="Invalid", message=place)
            data.append({"op": "replace", "path": place, "value": version})
            return
        data.setdefault("metadata", {})["resourceVersion"] = version
        if request.method == "POST":
            fill_defaults(kind, data["spec"])
            check_part(kind, "spec", data["spec"])
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            uid = str(uuid.uuid4())
            data["metadata"] |= {"uid": uid, "generation": 1, "creationTimestamp": now}
            data.pop("status", None)
        elif request.subresource == "status":
            for other in set(data) - {"status", "metadata"}:
                del data[other]
            data["metadata"] = {"resourceVersion": version}
            standing = self.objects[request.resource, request.namespace, request.name].raw
            merged = merge(standing.get("status", {}), data.get("status", {}))
            check_part(kind, "status", merged)
        elif request.name:
            data.pop("status", None)
            standing = self.objects[request.resource, request.namespace, request.name].raw
            if "spec" in data:
                merged = merge(standing["spec"], data["spec"])
                check_part(kind, "spec", merged)
                if merged != standing["spec"]:
                    generation = standing["metadata"]["generation"] + 1
                    data["metadata"]["generation"] = generation


def merge(value: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON merge patch's result (RFC 7396)."""
    merged = copy.deepcopy(dict(value))
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        elif isinstance(change, Mapping):
            old = merged.get(key)
            merged[key] = merge(old if isinstance(old, Mapping) else {}, change)
        else:
            merged[key] = change
    return merged


class Cluster:
    """The API server as `kubectl` uses it, beside the served API."""

    def __init__(self, server: ApiServer, session: aiohttp.ClientSession, served: Served) -> None:
        self.server = server
        self.served = served
        self._session = session

    async def apply(
        self, plural: str, name: str, spec: Mapping[str, Any], namespace: str = ""
    ) -> int:
        """Create an object, or merge its specification; return the status."""
        kind = DEFINITIONS[plural]["spec"]["names"]["kind"]
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        body = {
            "apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "spec": spec
        }  # fmt: skip
        if await self.read(plural, name, namespace) is None:
            return await self._send("POST", find_path(plural, "", namespace), body)
        return await self._send("PATCH", find_path(plural, name, namespace), {"spec": spec})

    async def delete(self, plural: str, name: str, namespace: str = "") -> int:
        return await self._send("DELETE", find_path(plural, name, namespace), None)

    async def read(self, plural: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        async with self._session.get(find_path(plural, name, namespace)) as answer:
            document: dict[str, Any] = await answer.json()
            return document if answer.status == 200 else None

    async def _send(self, verb: str, path: str, body: Any) -> int:
        async with self._session.request(verb, path, json=body) as answer:
            await answer.read()
            return answer.status

    async def wait_until(
        self, holds: Callable[[dict[str, Any] | None], bool], *place: str
    ) -> dict[str, Any]:
        """Return the object once the predicate holds of it; a failed wait shows the object."""
        seen: dict[str, Any] | None = None
        for _ in range(1200):  # a minute at least: a loaded machine
            seen = await self.read(*place)
            if holds(seen):
                return seen or {}
            await asyncio.sleep(0.05)
        raise AssertionError(f"{place}: {seen}")

    async def wait_condition(self, kind: str, reason: str, *place: str) -> dict[str, Any]:
        """Return the status once a condition has this reason."""

        def holds(seen: dict[str, Any] | None) -> bool:
            return seen is not None and find_condition(seen, kind).get("reason") == reason

        status: dict[str, Any] = (await self.wait_until(holds, *place))["status"]
        return status


def find_condition(seen: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return one condition of an object, or of its status."""
    conditions = seen.get("status", seen).get("conditions", ())
    return next((c for c in conditions if c["type"] == kind), {})


def find_path(plural: str, name: str, namespace: str) -> str:
    within = f"/namespaces/{namespace}" if namespace else ""
    path = f"/apis/{GROUP}/{VERSION}{within}/{plural}"
    return f"{path}/{name}" if name else path


@asynccontextmanager
async def running(server: ApiServer, url: str, api: ApiClient) -> AsyncIterator[None]:
    """The operator, until the end of the block."""
    registry = Operator(api, every_s=LOOK_S, retry_s=LOOK_S).build_registry()

    @kopf.on.login(registry=registry)
    async def sign_in(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url)

    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=build_settings(),
            clusterwide=True,
            standalone=True,
            stop_flag=stop,
            ready_flag=ready,
        )
    )
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({task, waiting}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield
    finally:
        waiting.cancel()
        stop.set()
        await asyncio.wait({task}, timeout=20)
        task.result()


@asynccontextmanager
async def building(folder: Path, **settings: Any) -> AsyncIterator[tuple[Cluster, Any]]:
    """A cluster with the served API; the second value starts an operator on it."""
    async with serving_tls(folder, **settings) as (served, address):
        api = ApiClient(address.url, address.token, str(address.ca), 0.5)
        server = ApiServer()
        for plural in ("v1/namespaces", "apiextensions.k8s.io/v1/customresourcedefinitions"):
            server.resources[plural].verbs = {"get", "list", "watch"}
        for plural, definition in DEFINITIONS.items():
            names = definition["spec"]["names"]
            server.resources[f"{GROUP}/{VERSION}/{plural}"] = {
                "namespaced": definition["spec"]["scope"] == "Namespaced",
                "kind": names["kind"],
                "singular": names["singular"],
                "verbs": {"get", "list", "watch", "patch", "create", "delete"},
                "shortnames": set(names["shortNames"]),
                "categories": set(names["categories"]),
                "subresources": {"status"},
            }
        try:
            async with server, kmock.Server(server) as listening:
                url = str(listening.url).rstrip("/")
                async with aiohttp.ClientSession(url) as session:
                    yield Cluster(server, session, served), lambda: running(server, url, api)
        finally:
            await api.close()
