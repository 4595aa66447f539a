"""Routes of work on a case: accept, defer, record work and the vendor's answer, close.

Also the case's archive, notices to tenants, and the figures of repairs. A tenant may accept its own
node's repair or defer it, and reads its own notices.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Literal

from aiohttp import web
from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_objection, decode_cursor, encode_cursor
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import refuse_missing
from provisioner.api.route import (
    ANYBODY,
    OPERATORS,
    OPERATORS_AND_TENANTS,
    VIEWERS,
    Effect,
    Paging,
    Route,
    format_etag,
)
from provisioner.api.routes.campaign_nodes import Deferral
from provisioner.api.routes.cases import TAG, open_case_service, read_case
from provisioner.api.routes.home import Page
from provisioner.control.repairs.case_service import Exchanges, kept_factory
from provisioner.control.repairs.stand_ins import compute_figures
from provisioner.execution.repair.case_evidence import Bundler
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.case import Case, Ending, Spare, TenantNotice
from provisioner.model.inventory import DeviceKind
from provisioner.planning.repair.case_policy import (
    Verb,
    defer_drain,
    describe_request,
    list_due_verbs,
)
from provisioner.planning.repair.repair_report import RepairReport

DAY_S = 86400.0
SENTENCE = r"^[^\x00-\x1f\x7f]+$"  # the text is shown on terminals and sent to vendors


class Work(Record):
    """The body of a return."""

    work: str = Field(
        min_length=1, max_length=500, description="Description of the work, in a sentence."
    )
    cards: tuple[str, ...] = Field(
        (), max_length=32, description="BMCs of cards that were exchanged: DPU_1."
    )


class Replacement(Record):
    """The body of a host's replacement."""

    why: str = Field(
        "another host was put into its place",
        min_length=1,
        max_length=300,
        description="The reason, in a sentence.",
    )


class Retirement(Record):
    """The body of a retirement."""

    why: str = Field(min_length=1, max_length=300, description="Text for its tenant.")
    days: float = Field(14.0, ge=0, le=3650, description="Days of notice.")
    disks: str = Field(
        "", max_length=300, description="Who destroyed its disks, and how: then it is not erased."
    )


class End(Record):
    """The body of a case's end by a person's decision."""

    why: str = Field(min_length=1, max_length=300, description="The reason, in a sentence.")
    ending: Ending = Field(Ending.NO_FAULT, description="Reason for the end.")


class Rma(Record):
    """The body of the vendor's return number."""

    number: str = Field(
        min_length=1, max_length=100, pattern=SENTENCE, description="The vendor's return number."
    )


class SparePart(Record):
    """The body of a spare."""

    kind: DeviceKind
    serial: str = Field(
        "", max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$", description="Its serial number."
    )
    part_number: str = Field(
        "", max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$", description="Its part number."
    )


class NoticePage(Record):
    """Notices to tenants, the newest first."""

    items: tuple[TenantNotice, ...]
    next: str = ""


class NoticeQuery(Paging):
    """The selection of notices."""

    kind: Literal["", "failure", "maintenance", "returned", "retirement", "replacement"] = Field(
        "", description="Select this kind."
    )


class BundleQuery(Record):
    """The selection of an archive."""

    fresh: Literal["true", "false"] = Field(
        "false", description="As the case is now, not as its ticket has it."
    )


class Span(Record):
    """The period of the figures."""

    days: float = Field(30.0, gt=0, le=36500, description="Days up to now.")


def handle_case_change(kind: ChangeKind) -> Callable[[Ask], Awaitable[Reply]]:
    async def handle(ask: Ask) -> Reply:
        case = await read_case(ask)
        ask.check_match(format_etag(case.generation))
        arguments = {} if ask.body is None else ask.body.model_dump(mode="json")
        tenant = "" if ask.caller.staff else case.tenant
        return await ask.parts.works.submit_change(ask, kind, case.id, tenant, arguments)

    return handle


async def change_case(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    case = await parts.store.cases.get(asked.subject)
    if case is None:
        return build_objection(asked.subject, "there is no such case", "See the list.")
    answer = await _do(parts, case, asked.kind, asked.asked_by, asked.arguments)
    if isinstance(answer, str):
        return build_objection(case.id, answer, "Look at the case.")
    return Outcome(RequestState.DONE, {"case": answer.id, "stage": answer.stage.value})


async def _do(
    parts: ApiParts, case: Case, kind: ChangeKind, by: str, told: dict[str, Any]
) -> Case | str:
    case_service = open_case_service(parts)
    now = parts.clock.now()
    match kind:
        case ChangeKind.CASE_ACCEPT:
            return await case_service.accept(case, by)
        case ChangeKind.CASE_DEFER:
            return await case_service.defer(case, float(told["until"]), by)
        case ChangeKind.CASE_RETIRE:
            at = now + float(told["days"]) * DAY_S
            return await case_service.retire(case, at, told["why"], by, disks=told["disks"])
        case ChangeKind.CASE_CLOSE:
            return await case_service.close(case, Ending(told["ending"]), by, told["why"])
        case ChangeKind.CASE_RMA:
            return await case_service.record_rma(case, told["number"], by)
        case ChangeKind.CASE_SPARE:
            part = SparePart.model_validate(told, strict=False)
            spare = Spare(kind=part.kind, serial=part.serial, part_number=part.part_number)
            return await case_service.record_spare(case, spare, by)
        case ChangeKind.CASE_TELL:
            return await case_service.send_ticket(case, by)
        case ChangeKind.CASE_RETURNED if not told["cards"]:
            return await case_service.record_return(case, by, told["work"])
    if parts.vault is None:
        return "this process has no credentials: ask the daemon"
    vault = parts.vault
    exchanges = Exchanges(parts.store, case_service, vault, parts.clock, kept_factory(vault))
    if kind is ChangeKind.CASE_RETURNED:
        return await exchanges.record_return(case, by, told["work"], told["cards"])
    assert kind is ChangeKind.CASE_REPLACE
    return await exchanges.replace(case, by, told["why"])


async def foresee_case(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the effects on a node that is retired or whose host is replaced."""
    case = await parts.store.cases.get(asked.subject)
    arguments = asked.arguments
    if case is None or not case.open:
        closed = build_objection(asked.subject, "it is closed, or there is none", "See the list.")
        return Forecast(blockers=closed.blockers)
    if asked.kind is ChangeKind.CASE_REPLACE:
        line = f"{case.node}: its logins and parts are forgotten; the host that stands there now "
        return Forecast((line + "is taken in as a stranger with the factory logins.",))
    at = parts.clock.now() + float(arguments["days"]) * DAY_S
    goes = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    heard = f"{case.tenant} is told now that" if case.tenant else "No tenant has it:"
    erased = f"not erased ({arguments['disks']})" if arguments["disks"] else "erased"
    return Forecast(
        (
            f"{heard} {case.node} goes for good at {goes}.",
            f"Then it is drained, {erased}, and its logins are given up (`retire_credentials`).",
            "It can come back only as a new node of the expected-hardware list.",
        )
    )


async def foresee_request(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the effects of a request on a case, or why the case does not accept it now."""
    case = await parts.store.cases.get(asked.subject)
    if case is None or not case.open:
        closed = build_objection(asked.subject, "it is closed, or there is none", "See the list.")
        return Forecast(blockers=closed.blockers)
    verb = Verb(asked.kind.value.rpartition(".")[2])
    due = list_due_verbs(case, await parts.store.nodes.get(case.node), staff=True)
    objection = "" if verb in due or verb is Verb.SPARE else f"it is in {case.stage}: not due now"
    if verb is Verb.DEFER:
        until = float(asked.arguments["until"])
        deferred = defer_drain(case, until, open_case_service(parts).policy, parts.clock.now())
        objection = deferred if isinstance(deferred, str) else ""
    if objection:
        refused = build_objection(case.id, objection, "Look at the case.")
        return Forecast(blockers=refused.blockers)
    return Forecast(describe_request(verb, case, asked.arguments))


async def export_bundle(ask: Ask) -> web.Response:
    """Return the archive of the case's ticket, or a new one of the case's present state."""
    case = await read_case(ask)
    parts = ask.parts
    if parts.vault is None or parts.signer is None:
        raise refuse_missing("archive")
    book = parts.store.cases
    bundler = Bundler(parts.store, book, parts.vault, parts.signer, parts.settings.site)
    fresh = ask.query.fresh == "true"
    content = b"" if fresh else await bundler.read_archive(case)
    content = content or await bundler.make_archive(case, ask.now)
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in case.id)
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.tar.gz"',
        "Cache-Control": "private, no-store",
    }
    return web.Response(body=content, content_type="application/gzip", headers=headers)


async def list_notices(ask: Ask) -> Reply:
    started = decode_cursor(ask.query.cursor, float, str)
    limit = ask.query.limit
    rows = await ask.parts.store.cases.list_notices_page(
        before=(float(started[0]), str(started[1])) if started else None,
        limit=limit + 1,
        tenant="" if ask.caller.staff else ask.caller.tenant,
        kind=ask.query.kind,
    )
    last = rows[limit - 1] if len(rows) > limit else None
    following = "" if last is None else encode_cursor(last.at, last.id)
    return Reply(NoticePage(items=rows[:limit], next=following))


async def show_figures(ask: Ask) -> Reply:
    """Return mean times to repair, and availability."""
    book = ask.parts.store.cases
    return Reply(await compute_figures(book, ask.now - ask.query.days * DAY_S, ask.now))


_ASKED = {200: OperationView, 202: OperationView}
_KIND = ChangeKind


def _verb(
    word: str,
    change: ChangeKind,
    effect: Effect,
    summary: str,
    body: type[Record] | None = None,
    *,
    lasting_with: frozenset[str] = frozenset(),
    **more: object,
) -> Route:
    tenants = change in (_KIND.CASE_ACCEPT, _KIND.CASE_DEFER)
    return Route(
        "POST",
        f"/cases/{{case}}/{word}",
        f"{word}_case",
        TAG,
        summary,
        OPERATORS_AND_TENANTS if tenants else OPERATORS,
        handle_case_change(change),
        _ASKED,
        effect=effect,
        lasting_with=lasting_with,
        body=body,
        entity=True,
        example=None if body is None else more,
    )


ROUTES = (
    _verb(
        "accept",
        _KIND.CASE_ACCEPT,
        Effect.LASTING,
        "Agree as its tenant: the node is taken back now.",
    ),
    _verb(
        "defer",
        _KIND.CASE_DEFER,
        Effect.LASTING,
        "Defer the repair as its tenant, by two weeks at most.",
        Deferral,
        until="2027-01-15T08:00:00Z",
    ),
    _verb(
        "returned",
        _KIND.CASE_RETURNED,
        Effect.MOMENTARY,
        "Report that people finished their work: the node is taken in anew, and certified.",
        Work,
        lasting_with=frozenset({"cards"}),  # other BMCs are believed from then on
        work="GPU 5 replaced",
    ),
    _verb(
        "replace",
        _KIND.CASE_REPLACE,
        Effect.LASTING,
        "Report another host in the place; its factory logins are those that the site stored.",
        Replacement,
        why="the board was dead",
    ),
    _verb(
        "retire",
        _KIND.CASE_RETIRE,
        Effect.LASTING,
        "Retire a node: its tenant is notified, then it is drained, erased and removed.",
        Retirement,
        why="too old",
        days=14.0,
    ),
    _verb(
        "close",
        _KIND.CASE_CLOSE,
        Effect.LASTING,
        "Close a case by hand; the node stays where it is.",
        End,
        why="nothing found",
    ),
    _verb(
        "rma",
        _KIND.CASE_RMA,
        Effect.LASTING,
        "Record the vendor's return number.",
        Rma,
        number="RMA-4711",
    ),
    _verb(
        "spare",
        _KIND.CASE_SPARE,
        Effect.LASTING,
        "Record the spare part for the repair.",
        SparePart,
        kind="gpu",
        serial="1650000000042",
    ),
    _verb(
        "tell",
        _KIND.CASE_TELL,
        Effect.MOMENTARY,
        "Update the case's ticket again now, after a failed update.",
    ),
    Route(
        "GET",
        "/cases/{case}/bundle",
        "show_case_bundle",
        TAG,
        "Export the case's evidence as one signed archive for the vendor (tar.gz).",
        VIEWERS,
        export_bundle,
        {200: Page},
        media="application/gzip",
        query=BundleQuery,
    ),
    Route(
        "GET",
        "/notices",
        "list_notices",
        TAG,
        "List notices to tenants: failures, maintenance, returns, retirement.",
        ANYBODY,
        list_notices,
        {200: NoticePage},
        query=NoticeQuery,
    ),
    Route(
        "GET",
        "/repairs",
        "show_repairs",
        TAG,
        "Show mean times to repair by stage, part and vendor; availability per tenant.",
        VIEWERS,
        show_figures,
        {200: RepairReport},
        query=Span,
    ),
)
