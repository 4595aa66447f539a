"""A provider of Terraform and OpenTofu for this API: tenant, campaign, pin and webhook.

One file on PyPI's `tf`, which speaks the plugin protocol 6; nothing of the daemon's own code. Each
resource is one path of the API. An apply waits until the daemon's operation is over; a refusal is
an error with the remedy. docs/integrations/terraform.md explains the use.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import uuid
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tf import types as t
from tf.iface import Config, DataSource, PlanContext, Provider, Resource, State
from tf.runner import run_provider
from tf.schema import Attribute, Schema
from tf.utils import Diagnostics

LIMIT_S = 150.0  # one request
PATIENCE_S = 1800.0  # one operation, a person's approval included
OPEN = ("waiting", "running")
GOOD = ("done", "unfinished")


class Refused(Exception):
    """The daemon's refusal with its remedy."""


class Api:
    """Requests to one daemon over verified TLS."""

    def __init__(self, server: str, token_file: str, ca: str) -> None:
        parts = urlsplit(server)
        if parts.scheme != "https" or not parts.hostname:
            raise Refused("server: write https://HOST:PORT; a token is never sent in clear")
        self._host = parts.hostname
        self._port = parts.port or 443
        self._token_file = Path(token_file)
        self._trust = ssl.create_default_context(cafile=ca or None)

    def ask(self, verb: str, path: str, body: Any = None) -> dict[str, Any] | None:
        """Return the answer's document; None for 404 of a read. Raises Refused."""
        token = self._token_file.read_text(encoding="ascii").strip()
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": str(uuid.uuid4())}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=LIMIT_S, context=self._trust
        )
        try:
            data = None if body is None else json.dumps(body)
            connection.request(verb, f"/v1{path}", data, headers)
            answer = connection.getresponse()
            document: dict[str, Any] = json.loads(answer.read() or b"{}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Refused(f"https://{self._host}:{self._port}: {type(error).__name__}") from None
        finally:
            connection.close()
        if answer.status == 404 and verb in ("GET", "DELETE"):
            return None
        if answer.status >= 400:
            raise Refused(explain(document))
        return document

    def change(self, verb: str, path: str, body: Any = None) -> None:
        """Make a change, and wait for its operation. Raises Refused."""
        operation = self.ask(verb, path, body)
        until = time.monotonic() + PATIENCE_S
        while operation is not None and operation["state"] in OPEN:
            if time.monotonic() > until:
                raise Refused(f"operation {operation['id']} is still {operation['state']}")
            time.sleep(1.0)
            operation = self.ask("GET", f"/operations/{operation['id']}")
        if operation is not None and operation["state"] not in GOOD:
            raise Refused(explain(operation))


def explain(document: Mapping[str, Any]) -> str:
    """Return a refusal in sentences, each with its remedy."""
    blockers = document.get("blockers") or ()
    lines = [f"{b['subject']}: {b['detail']}. Unblock: {b['unblock']}" for b in blockers]
    title = document.get("detail") or document.get("note") or document.get("title", "")
    return "\n".join(lines) or f"{title} Unblock: {document.get('unblock', '')}"


class ApiResource(Resource):
    """A resource at one path. `FIELDS` are the API's names; `name` is the path's last part."""

    TYPE = ""
    PATH = ""
    FIELDS: tuple[Attribute, ...] = ()

    def __init__(self, provider: ProvisionerProvider) -> None:
        self._provider = provider

    @classmethod
    def get_name(cls) -> str:
        return cls.TYPE

    @classmethod
    def get_schema(cls) -> Schema:
        name = Attribute("name", t.String(), required=True, requires_replace=True)
        return Schema(version=1, attributes=[name, *cls.FIELDS])

    def create(self, ctx: Any, planned: State) -> State | None:
        return self._do(ctx, planned["name"], lambda: self.send(planned, None), planned)

    def update(self, ctx: Any, current: State, planned: State) -> State | None:
        def act() -> None:
            self.send(planned, current)

        return self._do(ctx, planned["name"], act, planned) or current

    def read(self, ctx: Any, current: State) -> State | None:
        return self._do(ctx, current["name"], None, current)

    def import_(self, ctx: Any, name: str) -> State | None:
        return self._do(ctx, name, None)

    def delete(self, ctx: Any, current: State) -> None:
        try:
            self.remove(current)
        except Refused as error:
            ctx.diagnostics.add_error(f"{self.TYPE} {current['name']} is not removed", str(error))

    def _do(self, ctx: Any, name: str, act: Any, known: State | None = None) -> State | None:
        try:
            if act is not None:
                act()
            document = self.api.ask("GET", self.find_path(name))
            return None if document is None else self.view(name, document, known or {})
        except Refused as error:
            ctx.diagnostics.add_error(f"{self.TYPE} {name} is refused", str(error))
            return None if act is not None else known

    @property
    def api(self) -> Api:
        assert self._provider.api is not None
        return self._provider.api

    def find_path(self, name: str) -> str:
        return f"{self.PATH}/{quote(name, safe=':')}"

    def send(self, planned: State, current: State | None) -> None:
        body = {f.name: planned[f.name] for f in self.FIELDS if planned[f.name] is not None}
        self.api.change("PUT", self.find_path(planned["name"]), body)

    def remove(self, current: State) -> None:
        self.api.change("DELETE", self.find_path(current["name"]))

    def view(self, name: str, document: Mapping[str, Any], known: State) -> State:
        return {"name": name, **{f.name: document.get(f.name) for f in self.FIELDS}}

    def plan(self, ctx: PlanContext, current: State | None, planned: State) -> State | None:
        if ctx.changed_fields:
            for field in self.FIELDS:
                if field.computed and not field.optional:
                    planned[field.name] = t.Unknown
        return planned


def describe_field(name: str, kind: t.TfType, text: str, **more: Any) -> Attribute:
    """Return a field that may be left out."""
    return Attribute(name, kind, text, optional=True, **more)


class Tenant(ApiResource):
    """A tenant. Fields that are left out stay as the daemon has them."""

    TYPE = "tenant"
    PATH = "/tenants"
    QUOTAS = ("nodes", "gpus", "prefixes")
    FIELDS = (
        describe_field("vrf", t.String(), "Its VRF; it never changes.", computed=True,
                       requires_replace=True),
        describe_field("nodes", t.Number(), "Nodes that it has or waits for.", computed=True),
        describe_field("spread", t.Bool(), "Spread over units and racks.", computed=True),
        describe_field("picked", t.Set(t.String()), "Nodes that it gets first.", computed=True),
        describe_field("storage", t.Set(t.String()), "VRFs of storage.", computed=True),
        *(describe_field(f"quota_{q}", t.Number(), "A limit; null: none.") for q in QUOTAS),
    )  # fmt: skip

    def send(self, planned: State, current: State | None) -> None:
        path = self.find_path(planned["name"])
        body = {
            f.name: planned[f.name]
            for f in self.FIELDS
            if not f.name.startswith("quota_") and planned[f.name] not in (None, t.Unknown)
        }
        if current is not None and body.get("nodes", 0) < current["nodes"]:
            self.api.change("POST", f"{path}/shrink", {"to": body.pop("nodes"), "nodes": []})
        body["quota"] = {q: planned[f"quota_{q}"] for q in self.QUOTAS}
        self.api.change("PATCH", path, body)

    def view(self, name: str, document: Mapping[str, Any], known: State) -> State:
        row = document["tenant"]
        fields = {f: row[f] for f in ("vrf", "spread", "picked", "storage")}
        quotas = {f"quota_{q}": row["quota"][q] for q in self.QUOTAS}
        return {"name": name, "nodes": row["nodes_wanted"], **fields, **quotas}


class Campaign(ApiResource):
    """A campaign under its own name. `run` is the state that it should be in."""

    TYPE = "campaign"
    PATH = "/campaigns"
    FIELDS = (
        Attribute("release", t.String(), required=True, requires_replace=True),
        Attribute("select", t.String(), required=True, requires_replace=True),
        describe_field("policy", t.NormalizedJson(), "jsonencode(...)", requires_replace=True),
        describe_field("run", t.String(), "draft, started or paused.", computed=True,
                       default="draft"),
        describe_field("confirm", t.Set(t.String()), "One-way steps that a person agreed to."),
        Attribute("state", t.String(), "Its state at the daemon.", computed=True),
    )  # fmt: skip

    def send(self, planned: State, current: State | None) -> None:
        path = self.find_path(planned["name"])
        fields = ("name", "release", "select", "policy")
        draft = {f: planned[f] for f in fields if planned[f] is not None}
        self.api.change("POST", "/campaigns", draft)
        document = self.api.ask("GET", path) or {}
        move = (document["campaign"]["state"], planned["run"])
        if move == ("draft", "started"):
            self.api.change("POST", f"{path}/start", {"confirm": planned["confirm"] or []})
        elif move == ("started", "paused"):
            self.api.change("POST", f"{path}/pause", {"reason": "run = paused"})
        elif move == ("paused", "started"):
            self.api.change("POST", f"{path}/resume")
        elif move[0] != move[1] and move[1] != "draft":
            raise Refused(f"it is {move[0]}, and cannot become {move[1]} by this provider")

    def remove(self, current: State) -> None:
        document = self.api.ask("GET", self.find_path(current["name"]))
        if document is not None and document["campaign"]["state"] not in ("done", "aborted"):
            path = f"{self.find_path(current['name'])}/abort"
            self.api.change("POST", path, {"reason": "its resource was destroyed"})

    def view(self, name: str, document: Mapping[str, Any], known: State) -> State:
        row = document["campaign"]
        asked_for = {f: known.get(f) for f in ("policy", "confirm")}
        run = known.get("run") or "draft"
        fields = {"release": row["release"], "select": row["select"], "state": row["state"]}
        return {"name": name, "run": run, **asked_for, **fields}


class Pin(ApiResource):
    """A pinned release; its name is `fleet`, `rack:NAME` or `node:NAME`."""

    TYPE = "pin"
    PATH = "/pins"
    FIELDS = (
        Attribute("release", t.String(), required=True),
        Attribute("reason", t.String(), required=True),
        describe_field("until", t.String(), "RFC 3339; a node's or a rack's pin must end."),
    )

    def view(self, name: str, document: Mapping[str, Any], known: State) -> State:
        until = document["expires_at"]
        text = known.get("until")
        if until and text and datetime.fromisoformat(text) == datetime.fromisoformat(until):
            until = text  # the same instant, as it was written
        return {
            "name": name,
            "release": document["release"],
            "reason": document["reason"],
            "until": until,
        }


class Webhook(ApiResource):
    """A receiver of events. The secret stays in its file: Terraform's state has the path alone."""

    TYPE = "webhook"
    PATH = "/webhooks"
    FIELDS = (
        Attribute("url", t.String(), required=True),
        Attribute("secret_file", t.String(), required=True, requires_replace=True),
        describe_field("ca_file", t.String(), "CA of the receiver."),
        describe_field("tenant", t.String(), "Only this tenant's."),
        describe_field("kinds", t.Set(t.String()), "Only these events."),
    )

    def send(self, planned: State, current: State | None) -> None:
        path = self.find_path(planned["name"])
        ca = planned["ca_file"]
        fields = {
            "url": planned["url"],
            "kinds": planned["kinds"] or ["*"],
            "tenant": planned["tenant"] or "",
            "ca": Path(ca).read_text(encoding="ascii") if ca else "",
        }
        if current is not None:  # a merge: secret, pause and what waits stay
            self.api.change("PATCH", path, fields)
            return
        secret = Path(planned["secret_file"]).read_text(encoding="ascii").strip()
        self.api.change("PUT", path, {**fields, "secret": secret})

    def view(self, name: str, document: Mapping[str, Any], known: State) -> State:
        kinds = document["kinds"]
        return {
            "name": name,
            "url": document["url"],
            "secret_file": known.get("secret_file"),
            "ca_file": known.get("ca_file"),
            "tenant": document["tenant"] or None,
            "kinds": None if kinds == ["*"] and not known.get("kinds") else kinds,
        }


class ProvisionerProvider(Provider):
    """The provider: the address of one daemon, and four kinds of resources."""

    def __init__(self) -> None:
        self.api: Api | None = None

    def get_model_prefix(self) -> str:
        return "provisioner_"

    def full_name(self) -> str:
        return "provisioner.internal/gpu/provisioner"

    def get_provider_schema(self, diags: Diagnostics) -> Schema:
        server = Attribute("server", t.String(), "https://HOST:PORT", required=True)
        token = Attribute("token_file", t.String(), "A token of the role operator.", required=True)
        return Schema(attributes=[server, token, describe_field("ca", t.String(), "Its CA.")])

    def validate_config(self, diags: Diagnostics, config: Config) -> None:
        return None

    def configure_provider(self, diags: Diagnostics, config: Config) -> None:
        try:
            self.api = Api(config["server"], config["token_file"], config.get("ca") or "")
        except (Refused, OSError) as error:
            diags.add_error("The daemon cannot be asked", str(error))

    def get_data_sources(self) -> list[type[DataSource]]:
        return []

    def get_resources(self) -> list[type[Resource]]:
        return [Tenant, Campaign, Pin, Webhook]


if __name__ == "__main__":
    run_provider(ProvisionerProvider())
