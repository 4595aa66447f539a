"""Routes of tenants: list, show, put (create or change), shrink, delete; `?dry_run=true` on each.

A PUT says what the tenant is to be; asked again it changes nothing. An answer 202 says that it is
written down and not yet so everywhere: its blockers tell why, and the same request goes on.
"""

from __future__ import annotations

from typing import TypeVar

from aiohttp import web
from pydantic import Field, ValidationError

from provisioner.api.problem import blocked, problem
from provisioner.control.tenant_keeper import Answer, TenantKeeper
from provisioner.model.base import Record
from provisioner.model.tenant import Outside, Phase, Quota
from provisioner.planning.quotas import usage
from provisioner.planning.tenants import Request
from provisioner.ports import Store

PATH = "/api/v1/tenants"
Body = TypeVar("Body", bound=Record)


class Wanted(Record):
    """The body of a PUT; what is not given stays, or is the default of a new tenant."""

    vrf: str | None = Field(default=None, max_length=64)
    nodes: int | None = Field(default=None, ge=0, le=1_000_000)
    units: tuple[tuple[int, int], ...] | None = None
    outside: tuple[Outside, ...] | None = None
    storage: tuple[str, ...] | None = None
    quota: Quota | None = None


class Fewer(Record):
    """The body of a shrink."""

    to: int = Field(ge=0)
    nodes: tuple[str, ...] = ()


def add_routes(app: web.Application, keeper: TenantKeeper, store: Store) -> None:
    """Mount them."""

    async def list_all(_request: web.Request) -> web.Response:
        rows = await store.tenants()
        return web.json_response([t.model_dump(mode="json") for t in rows])

    async def show(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        row = next((t for t in await store.tenants() if t.name == name), None)
        if row is None:
            return problem(404, "There is no such tenant")
        used = usage(row, await store.nodes())
        return web.json_response(
            {"tenant": row.model_dump(mode="json"), "usage": used.model_dump(mode="json")}
        )

    async def put(request: web.Request) -> web.Response:
        body = await _body(request, Wanted)
        if isinstance(body, web.Response):
            return body
        name = request.match_info["name"]
        asked = Request(name=name, **{k: getattr(body, k) for k in body.model_fields_set})
        known = any(t.name == name for t in await store.tenants())
        do = keeper.change if known else keeper.create
        return _answered(await do(asked, dry_run=_dry(request)), 200 if known else 201)

    async def shrink(request: web.Request) -> web.Response:
        body = await _body(request, Fewer)
        if isinstance(body, web.Response):
            return body
        name = request.match_info["name"]
        found = await keeper.shrink(name, body.to, body.nodes, dry_run=_dry(request))
        return _answered(found, 200)

    async def delete(request: web.Request) -> web.Response:
        found = await keeper.delete(request.match_info["name"], dry_run=_dry(request))
        return _answered(found, 200)

    app.router.add_get(PATH, list_all)
    app.router.add_get(PATH + "/{name}", show)
    app.router.add_put(PATH + "/{name}", put)
    app.router.add_post(PATH + "/{name}/shrink", shrink)
    app.router.add_delete(PATH + "/{name}", delete)


def told(answer: Answer) -> dict[str, object]:
    """An answer as JSON: the same from the API and from the command line."""
    return {
        "tenant": answer.tenant.model_dump(mode="json") if answer.tenant else None,
        "leaving": [n.id for n in answer.nodes],
        "steps": [{"device": s.device, "lines": list(s.lines)} for s in answer.steps],
        "blockers": [b.model_dump(mode="json") for b in answer.blockers],
        "written": answer.written,
    }


def _answered(answer: Answer, done: int) -> web.Response:
    waits = answer.tenant is not None and answer.tenant.phase is not Phase.READY
    if answer.blockers and not (answer.written and waits):
        return blocked(answer.blockers)
    return web.json_response(told(answer), status=202 if answer.blockers else done)


def _dry(request: web.Request) -> bool:
    return request.query.get("dry_run", "") in ("1", "true", "yes")


async def _body(request: web.Request, model: type[Body]) -> Body | web.Response:
    try:
        return model.model_validate_json(await request.read() or b"{}")
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(word) for word in first["loc"])[:100]
        return problem(400, "The body is not what this takes", f"{where}: {first['msg']}"[:300])
