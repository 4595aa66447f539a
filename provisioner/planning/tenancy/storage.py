"""A tenant's shared storage: its record against what was read, and the acts in between. Pure.

The order is that of isolation: all that narrows comes first, and clients are admitted last. An
address is in a space only while the rows entitle its node to the tenant's network: `must` has the
nodes that serve the tenant now, `may` also those that are on their way in or out. What is open
beyond that is a foreign hand. It is closed, and told to people.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from provisioner.model.location import find_host_end
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.storage import (
    AddressSet,
    Export,
    FileStorage,
    SeenExport,
    SpaceAct,
    SpaceState,
    SpaceVerb,
    describe_set,
    intersect,
    make_set_of,
    subtract,
    unite,
)
from provisioner.model.tenant import SPACE_MAKING, Phase, Tenant
from provisioner.planning.release.entitlement import entitled_vrfs

# ------------------------------------------------------------------------------
# The wish: what a space should be, from the rows alone.


@dataclass(frozen=True)
class SpaceWish:
    """The desired state of one space. `storage` None: there should be none.

    `handle`: that of the space which was made for the tenant; "": none was recorded yet. `making`:
    one was asked for, so that an empty one is ours. `unread`: nodes whose rows cannot be read: any
    address may be one's of them.
    """

    space: str
    storage: FileStorage | None
    handle: str = ""
    must: AddressSet = ()
    may: AddressSet = ()
    unread: tuple[str, ...] = ()
    making: bool = False


def list_client_addresses(node: Node, networks: Sequence[str] = ()) -> tuple[str, ...] | Blocker:
    """Return the addresses by which a node reaches storage: the host's ends of its ports.

    `networks`: only those within one of these; (): all. A node without any is a Blocker: nobody
    could say whom the storage serves.
    """
    within = [ipaddress.ip_network(n) for n in networks]
    found = list_addresses(node)
    if within:
        own = [(a, ipaddress.ip_address(a)) for a in found]
        found = tuple(a for a, ip in own if any(ip in n for n in within))
    if found:
        return found
    where = f" within {', '.join(networks)}" if networks else ""
    return make_blocker(
        Reason.PRECONDITION,
        node.id,
        f"none of its ports has a planned address{where}, so that no storage can know it",
        "Give its ports their addresses on the expected-hardware list, or correct "
        "`storage.client_networks`.",
    )


def list_addresses(node: Node) -> tuple[str, ...]:
    """Return the host's ends of all of its ports, also those that do not reach storage."""
    ends = [find_host_end(port.address) for port in node.ports if port.address]
    return tuple(sorted({str(end.ip) for end in ends if end is not None}))


def make_wish(
    tenant: Tenant,
    nodes: Iterable[Node],
    space: str,
    networks: Sequence[str] = (),
    aside: Iterable[Node] = (),
) -> SpaceWish:
    """Return what the rows say of a tenant's space. A leaving tenant has none.

    `aside`: nodes with a damaged row, which keep what they have. So does an address outside of
    `networks`: a setting that was changed shuts out nobody who serves.
    """
    vrf_of = {tenant.name: tenant.vrf}
    must: list[str] = []
    may: list[str] = []
    unread: list[str] = []
    for node in aside:
        is_stand_in = node.generation < 0
        if is_stand_in or tenant.vrf in entitled_vrfs(node, vrf_of):
            may += list_addresses(node)
        if is_stand_in and not node.ports and node.kind is NodeKind.HOST:
            unread.append(node.id)
    for node in nodes:
        if tenant.vrf not in entitled_vrfs(node, vrf_of):
            continue
        may += list_addresses(node)
        addresses = list_client_addresses(node, networks)
        serves = node.state is State.RELEASED and node.placement is Placement.CUSTOMER
        if serves and not isinstance(addresses, Blocker):
            must += addresses
    storage = None if tenant.phase is Phase.LEAVING else tenant.file_storage
    held = tenant.space_handle if tenant.has_space else ""
    making = tenant.space_handle == SPACE_MAKING
    clients = (make_set_of(must), make_set_of(may))
    return SpaceWish(space, storage, held, *clients, tuple(unread), making)


# ------------------------------------------------------------------------------
# The difference: foreign hands, blockers, acts in their order.


class ForeignKind(StrEnum):
    """How a space differs from its record without an act of the daemon."""

    CLIENTS = "clients"  # it admits addresses that no row entitles
    EXPORT = "export"  # it has an export that no record asks for
    RULES = "rules"  # an export's rules, or the space's, are more open than its record
    QUOTA = "quota"  # a limit is another one
    SHUT = "shut"  # a node that serves the tenant is not admitted any more
    REPLACED = "replaced"  # another space has its name, or none has it any more


@dataclass(frozen=True)
class ForeignHand:
    """One difference. `opens`: it lets somebody read or write who may not."""

    kind: ForeignKind
    subject: str
    detail: str

    @property
    def opens(self) -> bool:
        return self.kind in (ForeignKind.CLIENTS, ForeignKind.EXPORT, ForeignKind.RULES)


@dataclass(frozen=True)
class SpacePlan:
    """With blockers no act is made but those that close: `closing`."""

    acts: tuple[SpaceAct, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    foreign: tuple[ForeignHand, ...] = ()

    @property
    def closing(self) -> tuple[SpaceAct, ...]:
        return tuple(a for a in self.acts if a.verb in (SpaceVerb.EXPEL, SpaceVerb.UNEXPORT))


@dataclass
class _Draft:
    closing: list[SpaceAct] = field(default_factory=list)
    making: list[SpaceAct] = field(default_factory=list)
    admitting: list[SpaceAct] = field(default_factory=list)
    blockers: list[Blocker] = field(default_factory=list)
    foreign: list[ForeignHand] = field(default_factory=list)

    def finish(self) -> SpacePlan:
        acts = (*self.closing, *self.making, *self.admitting)
        return SpacePlan(acts, tuple(self.blockers), tuple(self.foreign))


def plan_space(wish: SpaceWish, seen: SpaceState) -> SpacePlan:
    """Return the acts that bring a space to its wish, in their order; () if it is as desired."""
    if (stranger := _find_stranger(wish, seen)) is not None:
        return stranger
    if wish.storage is None:
        return _plan_removal(wish, seen)
    draft = _Draft()
    act = _ActsOf(wish.space, seen.handle)
    _close(wish, seen, draft, act)
    if not seen.handle:
        draft.making.append(act.make(SpaceVerb.MAKE, encrypted=wish.storage.encrypted))
    elif seen.encrypted != wish.storage.encrypted:
        words = "encrypted" if seen.encrypted else "not encrypted"
        draft.blockers.append(
            make_blocker(
                Reason.REFUSED,
                wish.space,
                f"its space is {words}, and no storage changes that afterwards",
                "Change the record back, or remove the tenant's storage and give it anew.",
            )
        )
    _limit(wish, wish.storage, seen, draft, act)
    admitted = intersect(seen.clients, wish.may)
    for export in wish.storage.exports:
        _bring_export(wish, export, seen, draft, act, admitted)
    missing = subtract(wish.must, seen.clients)
    if missing:
        draft.admitting.append(act.make(SpaceVerb.ADMIT, clients=missing))
        if wish.handle:
            detail = f"nodes that serve the tenant are shut out: {describe_set(missing)}"
            draft.foreign.append(ForeignHand(ForeignKind.SHUT, wish.space, detail))
    return draft.finish()


def plan_clients(
    wish: SpaceWish,
    seen: SpaceState,
    entering: AddressSet = (),
    leaving: AddressSet | None = None,
) -> SpacePlan:
    """Return the acts for nodes that enter or leave a space: one act for all of them.

    Who leaves is expelled whatever else is wrong with the space; with it goes what no row entitles,
    since a node may have had another address when it came. `leaving` (): no address is known. Who
    enters is admitted only if the space is exactly as its record asks, so that a handover never
    builds on a foreign hand; the acts that close one are in the plan.
    """
    act = _ActsOf(wish.space, seen.handle)
    if leaving is not None:
        return _plan_leaving(wish, seen, leaving)
    settled = plan_space(wish, seen)
    if settled.blockers:
        return settled
    remaining = [a for a in settled.acts if a.verb is not SpaceVerb.ADMIT]
    if not wish.handle or not seen.handle or wish.storage is None:
        blocker = make_blocker(
            Reason.PRECONDITION,
            wish.space,
            "the tenant's space is not made yet",
            "Wait until the tenant is ready; `provisioner storage show` has its state.",
        )
        return SpacePlan(blockers=(blocker,), foreign=settled.foreign)
    blockers = (*find_full(wish.space, wish.storage, seen), *_unsettled(wish.space, remaining))
    new = subtract(entering, seen.clients)
    for export in seen.exports.values():
        new = unite(new, subtract(entering, export.clients))
    acts = (act.make(SpaceVerb.ADMIT, clients=new),) if new and not blockers else ()
    return SpacePlan((*remaining, *acts), blockers, settled.foreign)


def _plan_leaving(wish: SpaceWish, seen: SpaceState, leaving: AddressSet) -> SpacePlan:
    admitted = seen.clients
    for export in seen.exports.values():
        admitted = unite(admitted, export.clients)
    held = intersect(admitted, leaving)
    excess = subtract(admitted, unite(wish.may, leaving))
    if wish.handle and wish.handle == seen.handle and excess:
        if not wish.unread:
            held = unite(held, excess)
        elif not leaving:
            return SpacePlan(blockers=(_unread(wish, excess),))
    act = _ActsOf(wish.space, seen.handle)
    acts = (act.make(SpaceVerb.EXPEL, clients=held),) if held and seen.handle else ()
    return SpacePlan(acts)


def _unread(wish: SpaceWish, excess: AddressSet) -> Blocker:
    nodes = ", ".join(wish.unread[:4])
    return make_blocker(
        Reason.CANNOT_TELL,
        wish.space,
        f"it admits {describe_set(excess)}, which may be an address of {nodes}, whose row is "
        "damaged",
        "Repair the row (`provisioner doctor`), or take the address out on the storage.",
    )


def find_full(space: str, storage: FileStorage, seen: SpaceState) -> tuple[Blocker, ...]:
    """Return a blocker for each limit that is used up: a node that enters could write nothing."""
    limits = [(space, storage.quota_bytes, seen.used_bytes)]
    for export in storage.exports:
        at = seen.exports.get(export.name)
        if at is not None and not export.read_only:
            limits.append((f"{space}/{export.name}", export.quota_bytes, at.used_bytes))
    return tuple(
        make_blocker(
            Reason.QUOTA,
            subject,
            f"{used} of {quota} bytes are used, so that a node could write nothing",
            "Raise its quota with `provisioner tenant apply`, or let the tenant remove files.",
        )
        for subject, quota, used in limits
        if quota is not None and used is not None and used >= quota
    )


def make_blocker(reason: Reason, space: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=f"storage/{space}", detail=detail, unblock=unblock)


def describe_act(act: SpaceAct) -> str:
    """Return one act as a line for people."""
    export = "" if act.export is None else f"{act.export.name} ({act.export.path})"
    match act.verb:
        case SpaceVerb.MAKE:
            return f"make space {act.space}{', encrypted' if act.encrypted else ''}, for nobody"
        case SpaceVerb.LIMIT:
            limit = "no limit" if act.quota_bytes is None else f"{act.quota_bytes} bytes"
            return f"space {act.space}: {limit}"
        case SpaceVerb.EXPORT:
            return f"space {act.space}: export {export} for {describe_set(act.clients)}"
        case SpaceVerb.ADMIT:
            return f"space {act.space}: admit {describe_set(act.clients)}"
        case SpaceVerb.EXPEL:
            return f"space {act.space}: expel {describe_set(act.clients)}"
        case SpaceVerb.UNEXPORT:
            return f"space {act.space}: remove export {export}; its files stay"
        case SpaceVerb.REMOVE:
            return f"remove space {act.space}"


def judge_access(
    space: str, addresses: Iterable[str], admitting: Mapping[str, frozenset[str]]
) -> tuple[tuple[str, bool, str], ...]:
    """Return (address, right, why) of each address of a node: its own space alone serves it."""
    judged = []
    for address in addresses:
        serving = admitting.get(address, frozenset())
        others = sorted(serving - {space})
        if others:
            judged.append((address, False, f"space {others[0]} serves it as well"))
        elif space and space not in serving:
            judged.append((address, False, f"space {space} does not serve it"))
        else:
            judged.append((address, True, f"served by {space}" if space else "served by none"))
    return tuple(judged)


@dataclass(frozen=True)
class _ActsOf:
    space: str
    handle: str

    def make(
        self,
        verb: SpaceVerb,
        *,
        clients: AddressSet = (),
        export: Export | None = None,
        quota_bytes: int | None = None,
        encrypted: bool = False,
    ) -> SpaceAct:
        return SpaceAct(verb, self.space, self.handle, clients, export, quota_bytes, encrypted)


def _find_stranger(wish: SpaceWish, seen: SpaceState) -> SpacePlan | None:
    """Return the plan for a space that is not, or may not be, the one made for the tenant."""
    if wish.storage is None and seen.handle and wish.handle != seen.handle:
        return SpacePlan()  # it is not ours, and left alone
    if wish.handle and seen.handle and wish.handle != seen.handle:
        detail = f"another space has its name now ({seen.handle[:64]}, not {wish.handle[:64]})"
    elif wish.handle and not seen.handle and wish.storage is not None:
        detail = "its space is gone, and its files perhaps with it"
    elif not wish.handle and seen.handle and wish.storage is not None:
        # where the storage does not say how many bytes are in it, the person's word stands for them
        used = bool(seen.clients or seen.exports or seen.used_bytes)
        if not used and (wish.making or wish.storage.adopt):
            return None
        how = "with clients, exports or files" if used else "an empty one"
        or_take = "" if used else "; or take it with `adopt: true` in `file_storage`"
        blocker = make_blocker(
            Reason.DUPLICATE,
            wish.space,
            f"the storage has a space of this name, {how}, that was not made for this tenant",
            f"Rename or remove it on the storage, or give the tenant another name{or_take}.",
        )
        return SpacePlan(blockers=(blocker,))
    else:
        return None
    blocker = make_blocker(
        Reason.PRECONDITION,
        wish.space,
        detail,
        "Find out who did it and put the space back; or take the tenant's storage away "
        "(`file_storage: {}`) and give it anew, in a new space.",
    )
    hand = ForeignHand(ForeignKind.REPLACED, wish.space, detail)
    return SpacePlan(blockers=(blocker,), foreign=(hand,))


def _plan_removal(wish: SpaceWish, seen: SpaceState) -> SpacePlan:
    act = _ActsOf(wish.space, seen.handle)
    if not seen.handle:
        return SpacePlan()
    acts = [act.make(SpaceVerb.EXPEL, clients=seen.clients)] if seen.clients else []
    acts += [act.make(SpaceVerb.UNEXPORT, export=as_export(name, e)) for name, e in _named(seen)]
    return SpacePlan((*acts, act.make(SpaceVerb.REMOVE)))


def as_export(name: str, seen: SeenExport) -> Export:
    """Return an export that was read as one that an act can name; it is not validated anew."""
    return Export.model_construct(
        name=name,
        path=seen.path,
        read_only=bool(seen.read_only),
        root_squash=bool(seen.root_squash),
        quota_bytes=seen.quota_bytes,
    )


def _named(seen: SpaceState) -> list[tuple[str, SeenExport]]:
    return sorted(seen.exports.items())


def _close(wish: SpaceWish, seen: SpaceState, draft: _Draft, act: _ActsOf) -> None:
    """Draft the acts that shut out whom no row entitles."""
    assert wish.storage is not None
    wanted = {e.name: e for e in wish.storage.exports}
    excess = subtract(seen.clients, wish.may)
    for name, export in _named(seen):
        if name in wanted:
            excess = unite(excess, subtract(export.clients, wish.may))
    if excess:
        if wish.unread:
            draft.blockers.append(_unread(wish, excess))
        else:
            draft.closing.append(act.make(SpaceVerb.EXPEL, clients=excess))
        detail = f"it admits {describe_set(excess)}, which no node of the tenant has"
        draft.foreign.append(ForeignHand(ForeignKind.CLIENTS, wish.space, detail))
    for name, export in _named(seen):
        if name not in wanted:
            draft.closing.append(act.make(SpaceVerb.UNEXPORT, export=as_export(name, export)))
            detail = f"{export.path} is exported, and no record asks for it"
            draft.foreign.append(ForeignHand(ForeignKind.EXPORT, f"{wish.space}/{name}", detail))
    draft.foreign += [ForeignHand(ForeignKind.RULES, wish.space, f) for f in seen.foreign]
    draft.blockers += [
        make_blocker(
            Reason.PRECONDITION,
            wish.space,
            f"{words}, which the daemon did not set",
            "Take it back on the storage; the daemon changes nothing that it has no record of.",
        )
        for words in seen.foreign
    ]


def _limit(
    wish: SpaceWish, storage: FileStorage, seen: SpaceState, draft: _Draft, act: _ActsOf
) -> None:
    if storage.quota_bytes == seen.quota_bytes:
        return
    quota = storage.quota_bytes
    if quota is not None and seen.used_bytes is not None and seen.used_bytes > quota:
        draft.blockers.append(_too_full(wish.space, seen.used_bytes, quota))
        return
    draft.making.append(act.make(SpaceVerb.LIMIT, quota_bytes=quota))


def _bring_export(
    wish: SpaceWish,
    export: Export,
    seen: SpaceState,
    draft: _Draft,
    act: _ActsOf,
    admitted: AddressSet,
) -> None:
    at = seen.exports.get(export.name)
    subject = f"{wish.space}/{export.name}"
    if at is not None and at.path != export.path:
        draft.blockers.append(
            make_blocker(
                Reason.REFUSED,
                subject,
                f"it exports {at.path}, and its record {export.path}: no export is moved",
                "Give the new path another name, and remove this one when nobody mounts it.",
            )
        )
        return
    quota = export.quota_bytes
    if at is not None and quota is not None and (at.used_bytes or 0) > quota:
        draft.blockers.append(_too_full(subject, at.used_bytes or 0, quota))
        return
    needs = act.make(SpaceVerb.EXPORT, export=export, clients=admitted)
    if at is None:
        draft.making.append(needs)
        return
    draft.foreign += [ForeignHand(ForeignKind.RULES, subject, f) for f in at.foreign]
    opened = [
        words
        for words, seen_rule, rule in (
            ("it can be written to", at.read_only, export.read_only),
            ("root of a node is root in it", at.root_squash, export.root_squash),
        )
        if rule and (seen_rule is False or (seen_rule is None and at.clients))
    ]
    draft.foreign += [ForeignHand(ForeignKind.RULES, subject, w) for w in opened]
    if at.quota_bytes != quota:
        detail = f"its limit is {at.quota_bytes} bytes, and its record's {quota}"
        draft.foreign.append(ForeignHand(ForeignKind.QUOTA, subject, detail))
    rules = ((at.read_only, export.read_only), (at.root_squash, export.root_squash))
    differs = at.quota_bytes != quota or any(
        bool(at.clients) if held is None else held != rule for held, rule in rules
    )
    if differs or at.foreign or subtract(admitted, at.clients):
        draft.making.append(needs)


def _too_full(subject: str, used: int, quota: int) -> Blocker:
    return make_blocker(
        Reason.QUOTA,
        subject,
        f"it holds {used} bytes, more than the new limit of {quota}",
        "Ask for a larger limit, or let the tenant remove files first.",
    )


def _unsettled(space: str, acts: Sequence[SpaceAct]) -> tuple[Blocker, ...]:
    return tuple(
        make_blocker(
            Reason.PRECONDITION,
            space,
            f"it is not as its record asks: {describe_act(act)}",
            "The watch closes it; `provisioner storage show` has it, `tenant settle` brings it.",
        )
        for act in acts[:3]
    )
