"""Routes of a restore: its differences, a person's decision on each, and its end.

After the end the daemons act again.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.node import State
from provisioner.model.recovery import Difference, Settlement
from provisioner.model.tenant import PortPlacement
from provisioner.model.times.instant import InstantOrNone
from provisioner.planning.watch.high_water import adopted_proof, settle_by_word, settle_port_by_word
from provisioner.ports import StaleWrite

TAG = "recovery"
OTHER_WORD = "Give the other word, or put it right first."


class RecoveryView(Record):
    """A restore that waits to be settled. `look_only` empty: the daemons act."""

    look_only: str = Field(description="Why nothing is written to any device.")
    surveyed_at: InstantOrNone
    adopted_ports: dict[str, str] = Field(
        description='Ports without a node that a person left in a VRF: "leaf/interface".'
    )
    items: tuple[Difference, ...]


class PersonsWord(Record):
    """The body of a settlement."""

    subject: str = Field(
        min_length=1, max_length=200, description="Name of the difference in the list."
    )
    word: Settlement = Field(description="adopt: the leaves are right; keep: the row is right.")


async def list_all(ask: Ask) -> Reply:
    """Return every difference, those without a decision first."""
    book = ask.parts.store.recovery
    shown = RecoveryView(
        look_only=await book.get_look_only(),
        surveyed_at=await book.get_surveyed_at(),
        adopted_ports=dict(await book.list_adopted_ports()),
        items=tuple(await book.list_differences()),
    )
    return Reply(shown)


async def settle_difference(ask: Ask) -> Reply:
    """Ask for a settlement."""
    if await _find(ask.parts, ask.body.subject) is None:
        raise refuse_missing("difference that waits for a word")
    arguments = ask.body.model_dump(mode="json")
    kind = ChangeKind.RECOVERY_SETTLE
    return await ask.parts.works.submit_change(ask, kind, ask.body.subject, "", arguments)


async def finish_recovery(ask: Ask) -> Reply:
    """Ask for the end of the restore."""
    return await ask.parts.works.submit_change(ask, ChangeKind.RECOVERY_FINISH, "site", "", {})


async def change_recovery(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out: the decision and the node's row that follows from it are one transaction."""
    book = parts.store.recovery
    now = parts.clock.now()
    if asked.kind is ChangeKind.RECOVERY_FINISH:
        if not await book.get_look_only():
            return build_objection("site", "no restore waits to be settled", "Nothing is to do.")
        try:
            await book.finish(asked.asked_by, now)
        except StaleWrite as stale:
            unblock = "See `provisioner recovery list`; `provisioner serve` compares."
            return build_objection("site", str(stale), unblock)
        return Outcome(RequestState.DONE, {"note": "the daemons act again"})
    word = Settlement(asked.arguments["word"])
    difference = await _find(parts, asked.subject)
    if word is Settlement.RULE:
        return build_objection(asked.subject, "rule is no person's word", "Give adopt or keep.")
    if difference is None:
        return build_objection(
            asked.subject, "it waits for no word", "See `provisioner recovery list`."
        )
    settled = {"settled": word, "settled_by": asked.asked_by, "settled_at": now}
    if difference.leaf:
        if against := settle_port_by_word(difference, word):
            return build_objection(asked.subject, against, OTHER_WORD)
        await book.settle(difference.model_copy(update=settled))
        note = "it stays where it is" if word is Settlement.ADOPT else "it is fenced after `finish`"
        return Outcome(RequestState.DONE, {"note": note})
    node = await parts.store.nodes.get(asked.subject)
    if node is None:
        return build_objection(
            asked.subject, "there is no such node", "See `provisioner node list`."
        )
    changed = settle_by_word(node, difference, word, now)
    if isinstance(changed, str):
        return build_objection(asked.subject, changed, OTHER_WORD)
    read = [
        PortPlacement(switch=p.switch, interface=p.interface, vrf=difference.vrf)
        for p in changed.ports
    ]
    adopted = word is Settlement.ADOPT and changed.state is State.RELEASED
    proof = adopted_proof(changed, read, now) if adopted else None
    await book.settle(difference.model_copy(update=settled), changed, proof)
    return Outcome(RequestState.DONE, {"state": changed.state.value, "tenant": changed.tenant})


async def foresee_settlement(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return both sides' reports, and the effect of the decision on the node."""
    difference = await _find(parts, asked.subject)
    if difference is None:
        return Forecast()
    first = f"{asked.subject}: the row says {difference.row}; the leaves say {difference.world}."
    then = {
        Settlement.ADOPT: (
            "The row becomes what the leaves say; a node that left its tenant is erased."
        ),
        Settlement.KEEP: "The row stays; a node that serves beside it is fenced and erased.",
    }
    return Forecast(
        (first, then.get(Settlement(asked.arguments["word"]), "This is no person's word."))
    )


async def _find(parts: ApiParts, subject: str) -> Difference | None:
    for one in await parts.store.recovery.list_differences():
        if one.subject == subject and one.settled is None:
            return one
    return None


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/recovery",
        "list_differences",
        TAG,
        "List differences between rows and leaves after a restore, and the open decisions.",
        VIEWERS,
        list_all,
        {200: RecoveryView},
    ),
    Route(
        "POST",
        "/recovery/settle",
        "settle_difference",
        TAG,
        "Decide on one difference. No port moves before the end.",
        OPERATORS,
        settle_difference,
        _ASKED,
        effect=Effect.LASTING,
        body=PersonsWord,
        example={"subject": "su0-n01", "word": "keep"},
        refusals={404: "No such difference waits for a word."},
        site=True,
    ),
    Route(
        "POST",
        "/recovery/finish",
        "finish_recovery",
        TAG,
        "End a restore once every difference is settled: the daemons act again.",
        OPERATORS,
        finish_recovery,
        _ASKED,
        effect=Effect.LASTING,
        site=True,
    ),
)
