"""Tenants from a person's request to the fabric: decided, written, applied, proved.

The row is the intention, and it is stored before a device gets a request; the fabric's state is
read back, so that after an interruption the request is repeated, or `settle` is called. A tenant
gets nodes when its network was observed everywhere, and is deleted when it was observed nowhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.execution.tenancy.spaces import StandingSpace, TenantSpaces
from provisioner.model.integrations.partition import FabricPartitions
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Phase, Tenant, TenantKey, TenantUserData
from provisioner.model.tenant_network import TenantFilters
from provisioner.planning.tenancy import tenants
from provisioner.planning.tenancy.tenants import Request
from provisioner.planning.tenancy.vrf_plan import FabricPlan
from provisioner.ports import Clock, FabricStep, Isolation, PartitionReads, PortError, StaleWrite
from provisioner.store.sql_store import SqlStore

log = logging.getLogger(__name__)

ReadFilters = Callable[[Tenant], Awaitable[TenantFilters]]
Prove = Callable[[Tenant, FabricPlan], Awaitable[tuple[Blocker, ...]]]


@dataclass(frozen=True)
class Answer:
    """What became of a request. `tenant` None: there is none (any more).

    With blockers and a tenant in another phase than ready, it is written down and not yet so.
    """

    tenant: Tenant | None = None
    nodes: tuple[Node, ...] = ()  # that leave it
    steps: tuple[FabricStep, ...] = ()  # that were needed, or in a dry run would be
    blockers: tuple[Blocker, ...] = ()
    written: bool = field(default=False)


class TenantKeeper:
    """The keeper of tenants, one per process. `fabric` reads the present leaves; requests are
    serial.

    `prove` reads the fabric's behaviour for a tenant besides its configuration, before it is ready.
    `partitions`: readings of UFM, which is among the isolations then. `filters` reads the filters
    of a tenant's ports. `spaces`: its shared storage, which is among the isolations then.
    """

    def __init__(
        self,
        store: SqlStore,
        clock: Clock,
        isolations: Sequence[Isolation],
        fabric: Callable[[], Awaitable[FabricPlan]],
        prove: Prove | None = None,
        partitions: PartitionReads | None = None,
        filters: ReadFilters | None = None,
        spaces: TenantSpaces | None = None,
    ) -> None:
        self._filters = filters
        self._spaces = spaces
        self._store = store
        self._clock = clock
        self._isolations = tuple(isolations)
        self._fabric = fabric
        self._prove = prove
        self._partitions = partitions
        self._turn = asyncio.Lock()
        self._told: dict[str, tuple[Blocker, ...]] = {}

    async def run(self, every_s: float) -> None:
        while True:
            try:
                await self.tick()
            except PortError as error:  # of the store; the scheduler reports it as well
                log.warning("no look at tenants: %s", error)
            await self._clock.sleep(every_s)

    async def tick(self) -> None:
        """Bring every tenant one step forward. The person who requested it may be gone.

        Blockers are logged once, and again when they change.
        """
        rows = [t for t in await self._store.tenants.list() if not t.is_damaged]
        waiting = [t for t in rows if t.number is not None and t.phase is not Phase.READY]
        if self._spaces is not None:  # of a tenant that the hardware list names, storage is made
            waiting += [t for t in rows if t.number is None and _lacks_space(t)]
        self._told = {t.name: self._told.get(t.name, ()) for t in waiting}
        for tenant in waiting:
            answer = await self.settle(tenant.name)
            if answer.blockers and answer.blockers != self._told[tenant.name]:
                log.warning("tenant %s is %s: %s", tenant.name, tenant.phase, answer.blockers[0])
            elif not answer.blockers:
                log.info("tenant %s: %s is done", tenant.name, tenant.phase)
            self._told[tenant.name] = answer.blockers

    async def create(self, asked: Request, *, by: str = "", dry_run: bool = False) -> Answer:
        """Return a new tenant, with its network on every device concerned."""
        async with self._turn:
            rows = await self._store.tenants.list()
            nodes = await self._store.nodes.list()
            made = tenants.create(asked, rows, nodes, await self._fabric())
            return await self._carry_out(("create", by), made, rows, dry_run=dry_run)

    async def change(self, asked: Request, *, by: str = "", dry_run: bool = False) -> Answer:
        """Change nodes, units, neighbours, storage or quota."""
        async with self._turn:
            rows = await self._store.tenants.list()
            nodes = await self._store.nodes.list()
            made = tenants.change_tenant(asked, rows, nodes, await self._fabric())
            return await self._carry_out(("change", by), made, rows, dry_run=dry_run)

    async def shrink(
        self,
        name: str,
        to: int,
        leaving: Sequence[str] = (),
        *,
        by: str = "",
        dry_run: bool = False,
    ) -> Answer:
        """Reduce a tenant's nodes; released ones are drained, fenced and erased by the nodes'
        journey.
        """
        async with self._turn:
            rows = await self._store.tenants.list()
            nodes = await self._store.nodes.list()
            shrunk = tenants.shrink_tenant(name, to, leaving, rows, nodes, self._clock.now())
            if isinstance(shrunk, tuple):
                return Answer(blockers=shrunk)
            return await self._carry_out(
                ("shrink", by),
                shrunk.tenant,
                rows,
                shrunk.nodes,
                known=await self._list_known(name, nodes),
                dry_run=dry_run,
            )

    async def delete(self, name: str, *, by: str = "", dry_run: bool = False) -> Answer:
        """The tenant's network goes from every device, then its row. Refused while it has nodes."""
        async with self._turn:
            rows = await self._store.tenants.list()
            nodes = await self._store.nodes.list()
            made = tenants.delete(name, rows, nodes)
            if made is None:
                return Answer()
            known = await self._list_known(name, nodes)
            return await self._carry_out(("delete", by), made, rows, known=known, dry_run=dry_run)

    async def keep_keys(self, name: str, keys: Sequence[TenantKey], *, by: str) -> Answer:
        """Store these keys of a tenant's login instead of the present ones; no device changes."""
        by_name = tuple(sorted(keys, key=lambda k: k.name))
        return await self._keep(name, {"ssh_keys": by_name}, "keys", by)

    async def keep_user_data(self, name: str, data: TenantUserData | None, *, by: str) -> Answer:
        """Store the record of a tenant's user data; no device changes."""
        return await self._keep(name, {"user_data": data}, "user_data", by)

    async def _keep(self, name: str, fields: Mapping[str, object], request: str, by: str) -> Answer:
        async with self._turn:
            rows = await self._store.tenants.list()
            row = next((t for t in rows if t.name == name), None)
            if row is None or tenants.find_damaged(rows):
                return Answer(blockers=tenants.find_damaged(rows))
            made = row.model_copy(update=fields)
            try:
                now = self._clock.now()
                saved = await self._store.tenants.save(
                    made, new=False, nodes=(), request=request, by=by, now=now
                )
            except StaleWrite as stale:
                return Answer(row, blockers=(_stale(name, stale),))
            return Answer(saved, written=True)

    async def settle(self, name: str) -> Answer:
        """Bring the fabric to the recorded state of one tenant."""
        async with self._turn:
            rows = await self._store.tenants.list()
            row = next((t for t in rows if t.name == name), None)
            if row is None or row.is_damaged:
                return Answer(row)
            if row.phase is Phase.READY and self._spaces is not None:
                return await self._settle_storage(row)
            if row.number is None:
                return Answer(row)
            return await self._settled(row, rows, dry_run=False)

    async def audit(self) -> Answer:
        """Return the differences of all tenants' networks from their records; change nothing."""
        steps, blockers = await self._look(await self._store.tenants.list(), ())
        return Answer(steps=steps, blockers=blockers)

    async def read_filters(self, tenant: Tenant) -> TenantFilters:
        """Return the filters of security groups on a tenant's ports, read from the leaves now."""
        if self._filters is None:
            return TenantFilters(ports=())
        return await self._filters(tenant)

    async def read_storage(self, name: str = "") -> tuple[StandingSpace, ...] | Blocker | None:
        """Return tenants' spaces as the storage has them now; None: this site has no storage."""
        return None if self._spaces is None else await self._spaces.stand(name)

    async def list_partitions(self) -> FabricPartitions | None:
        """Return the InfiniBand partitions as UFM lists them now; None: this site has no UFM."""
        if self._partitions is None:
            return None
        return await self._partitions.list_partitions(await self._store.tenants.list())

    async def close(self) -> None:
        await asyncio.gather(*(isolation.close() for isolation in self._isolations))

    # --- from the decision to the fabric

    async def _carry_out(
        self,
        asked: tuple[str, str],  # the request, and the person who made it
        made: Tenant | tuple[Blocker, ...],
        rows: Sequence[Tenant],
        nodes: tuple[Node, ...] = (),
        *,
        known: Collection[str] | None = None,
        dry_run: bool,
    ) -> Answer:
        if not isinstance(made, Tenant):
            return Answer(blockers=made)
        if damaged := tenants.find_damaged(rows):
            return Answer(blockers=damaged)
        if made.file_storage is not None and self._spaces is None:
            return Answer(blockers=(_no_storage(made.name),))
        stored = next((t for t in rows if t.name == made.name), None)
        if not dry_run and made != stored:
            try:
                made = await self._store.tenants.save(
                    made,
                    new=stored is None,
                    nodes=nodes,
                    request=asked[0],
                    by=asked[1],
                    now=self._clock.now(),
                    known=known,
                )
            except StaleWrite as stale:
                return Answer(stored, blockers=(_stale(made.name, stale),))
        remaining = [t for t in rows if t.name != made.name]
        answer = await self._settled(made, [*remaining, made], dry_run=dry_run)
        written = not dry_run and made != stored
        return Answer(answer.tenant, nodes, answer.steps, answer.blockers, written)

    async def _list_known(self, tenant: str, nodes: Sequence[Node]) -> Collection[str]:
        """Return a tenant's nodes as they were read, and all that damaged rows set aside."""
        aside = await self._store.nodes.list_set_aside()
        return {n.id for n in nodes if n.tenant == tenant} | {n.id for n in aside}

    async def _settled(self, row: Tenant, rows: Sequence[Tenant], *, dry_run: bool) -> Answer:
        if row.phase is Phase.READY:
            return Answer(row)
        steps, blockers = await self._look(rows, (row.name,))
        if dry_run or blockers:
            return Answer(row, steps=steps, blockers=blockers)
        for isolation in self._isolations[:: -1 if row.phase is Phase.LEAVING else 1]:
            # read again: the one fabric may have needed its time
            delta = await isolation.delta(rows, (row.name,))
            blockers = delta.blockers or await isolation.bring(delta)
            if blockers:
                return Answer(row, steps=steps, blockers=blockers)
        if self._prove is not None and row.phase is Phase.MAKING:
            blockers = await self._prove(row, await self._fabric())
            if blockers:
                return Answer(row, steps=steps, blockers=blockers)
        now = self._clock.now()
        row = await self._take_handle(row)
        try:
            if row.phase is Phase.LEAVING:
                await self._store.tenants.remove(row, now)
                return Answer(None, steps=steps)
            ready = row.model_copy(update={"phase": Phase.READY})
            saved = await self._store.tenants.save(
                ready, new=False, nodes=(), request="ready", now=now
            )
        except StaleWrite as stale:
            return await self._compare_newer(row, steps, stale)
        return Answer(saved, steps=steps)

    async def _settle_storage(self, row: Tenant) -> Answer:
        """Bring the space of a ready tenant to its record, and let in nodes that are shut out."""
        assert self._spaces is not None
        delta = await self._spaces.delta([row], (row.name,))
        blockers = delta.blockers or await self._spaces.bring(delta)
        return Answer(row, steps=delta.steps, blockers=blockers)

    async def _take_handle(self, row: Tenant) -> Tenant:
        """Return the row with the space that was recorded while its storage was made, if only that
        changed meanwhile.
        """
        newer = next((t for t in await self._store.tenants.list() if t.name == row.name), None)
        if newer is None:
            return row
        written = {"space_handle": newer.space_handle, "generation": newer.generation}
        return newer if newer == row.model_copy(update=written) else row

    async def _compare_newer(
        self, row: Tenant, steps: tuple[FabricStep, ...], stale: StaleWrite
    ) -> Answer:
        """Return the newer row if another keeper ended the same meanwhile, else the blockers.

        The daemon goes on with every tenant by itself, also with one that a person waits for.
        """
        newer = next((t for t in await self._store.tenants.list() if t.name == row.name), None)
        if newer is None and row.phase is Phase.LEAVING:
            return Answer(None, steps=steps)
        if newer is not None:
            ended = {
                "phase": Phase.READY,
                "generation": newer.generation,
                "space_handle": newer.space_handle,
            }
            if row.phase is Phase.MAKING and newer == row.model_copy(update=ended):
                return Answer(newer, steps=steps)
        return Answer(row, steps=steps, blockers=(_stale(row.name, stale),))

    async def _look(
        self, rows: Sequence[Tenant], only: Sequence[str]
    ) -> tuple[tuple[FabricStep, ...], tuple[Blocker, ...]]:
        """Read all fabrics before any is changed; none, while a tenant is unreadable."""
        if damaged := tenants.find_damaged(rows):
            return (), damaged
        deltas = [await isolation.delta(rows, only) for isolation in self._isolations]
        return (
            tuple(step for delta in deltas for step in delta.steps),
            tuple(blocker for delta in deltas for blocker in delta.blockers),
        )


def _lacks_space(tenant: Tenant) -> bool:
    """Return whether its space is to be made, or to be removed."""
    return (tenant.file_storage is not None) != tenant.has_space


def _no_storage(name: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=name,
        detail="this site has no shared storage that the daemon manages",
        unblock="Set `storage` in the settings (docs/storage.md), or leave `file_storage` out.",
    )


def _stale(name: str, stale: StaleWrite) -> Blocker:
    return Blocker(
        reason=Reason.PRECONDITION,
        subject=name,
        detail=f"another writer changed it meanwhile: {stale}",
        unblock="Look at it, then ask again.",
    )
