"""Routes of the evidence log: its signed head, and a node's entries with their proofs."""

from __future__ import annotations

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import ANYBODY, Nothing, Route
from provisioner.model.base import Record
from provisioner.planning.certification.evidence_log import (
    EntryBundle,
    Growth,
    OwnName,
    blind,
    cut_to_tenant,
    salt_of,
    write_checkpoint,
    write_verifier_key,
)
from provisioner.store.repositories.evidence_log import LogState

TAG = "certificates"


class SinceFilter(Nothing):
    """What the reader knows already."""

    since: int = Field(
        0,
        ge=0,
        le=2**53,
        description="Size of a checkpoint that you kept: its growth is proved, too.",
    )


class LogHead(Record):
    """The head of the evidence log, signed."""

    size: int = Field(description="Number of entries under the head.")
    behind: int = Field(description="Events of the journal that are not in the log yet.")
    checkpoint: str = Field(description="C2SP tlog-checkpoint in a signed note.")
    verifier_key: str = Field(
        description="The site's key as witnesses and monitors take it: name, id and key."
    )
    since: Growth | None = Field(None, description="That the log only grew since that size.")


class LogBundle(Record):
    """A node's entries; `log verify` checks them with the site's public keys alone."""

    bundle: EntryBundle = Field(description="Checkpoint, entries and their proofs.")


async def show_head(ask: Ask) -> Reply:
    """Return the log's head, as it stands."""
    state = await _read_state(ask)
    signer = ask.parts.signer
    assert signer is not None
    return Reply(
        LogHead(
            size=state.size,
            behind=state.behind,
            checkpoint=await _sign_head(ask, state),
            verifier_key=write_verifier_key(state.origin, signer.public_key),
            since=await _prove_growth(ask, state),
        )
    )


async def export_entries(ask: Ask) -> Reply:
    """Return a node's entries: all to the staff, to a tenant those of its own time."""
    state = await _read_state(ask)
    log = ask.parts.store.evidence_log
    node = ask.read_word("node")
    found = await log.list_entries(node, state.size)
    own = None
    if not ask.caller.staff:
        name = ask.caller.tenant
        own = OwnName(name=name, salt=salt_of(state.secret, name)) if name else None
        found = [] if own is None else cut_to_tenant(found, blind(own.salt, own.name))
    if not found:
        raise refuse_missing("entry of this node")
    return Reply(
        LogBundle(
            bundle=EntryBundle(
                checkpoint=await _sign_head(ask, state),
                node=node,
                entries=await log.prove_entries(found, state.size),
                since=await _prove_growth(ask, state),
                tenant=own,
            )
        )
    )


async def _read_state(ask: Ask) -> LogState:
    """Return the log's standing. Raises Refused where nothing was written or nobody signs."""
    if ask.parts.signer is None:
        raise refuse_missing("signing key in this process")
    state = await ask.parts.store.evidence_log.read_state()
    if not state.size:
        remedy = "The daemon writes it once a minute, from the first node's certificate on."
        raise build_refusal(409, "log", "the log has no entry yet", remedy)
    if ask.query.since > state.size:
        problem = f"the log has {state.size} entries, fewer than the {ask.query.since} you know"
        remedy = "Compare your checkpoint's name with this one: the database is another, or older."
        raise build_refusal(409, "since", problem, remedy)
    return state


async def _sign_head(ask: Ask, state: LogState) -> str:
    assert ask.parts.signer is not None
    root = await ask.parts.store.evidence_log.read_root(state.size)
    text = write_checkpoint(state.origin, state.size, root)
    return ask.parts.signer.sign_note(state.origin, text)


async def _prove_growth(ask: Ask, state: LogState) -> Growth | None:
    size = ask.query.since
    if not size:
        return None
    return Growth(size=size, path=await ask.parts.store.evidence_log.prove_growth(size, state.size))


_NOT_YET = "The log has no entry yet, or fewer than you know."
ROUTES = (
    Route(
        "GET",
        "/log",
        "show_log",
        TAG,
        "Show the signed head of the log of certificates, erasures and handovers.",
        ANYBODY,
        show_head,
        {200: LogHead},
        query=SinceFilter,
        refusals={404: "This process has no signing key.", 409: _NOT_YET},
    ),
    Route(
        "GET",
        "/nodes/{node}/log",
        "export_log",
        TAG,
        "Export a node's entries of the log with their proofs, which are verified offline.",
        ANYBODY,
        export_entries,
        {200: LogBundle},
        query=SinceFilter,
        refusals={409: _NOT_YET},
    ),
)
