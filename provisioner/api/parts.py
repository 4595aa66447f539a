"""What the API is made of: everything that handlers may reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from provisioner.access.identity import Identity
from provisioner.api.changes import Works
from provisioner.api.console_map import Atlas
from provisioner.api.feed import Feed
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.matrix import Matrix
from provisioner.planning.path.planner import PlanCache
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Clock, Credentials
from provisioner.ports.rehearsals import Rehearsals
from provisioner.settings import Settings
from provisioner.store.database.sql_store import SqlStore
from provisioner.store.signing import Signer


@dataclass(frozen=True)
class ApiParts:
    """One per process."""

    store: SqlStore
    clock: Clock
    settings: Settings
    identity: Identity
    keeper: TenantKeeper
    matrix: Matrix
    artifacts: Path
    plans: PlanCache
    works: Works
    feed: Feed
    static: Mapping[str, tuple[str, bytes]]  # path -> (type, content) of pages
    vault: Credentials | None = None  # None: nothing that needs a login is done here
    signer: Signer | None = None  # None: archives are only given as they are stored
    rehearsals: Rehearsals | None = None  # None: there is no simulator in this process
    plan: AddressPlan | None = None  # of the fabric's addresses: tells switches' planes
    outside: OutsideArtifacts | None = None  # None: devices pull from us, or we do not know
    atlas: Atlas = field(default_factory=Atlas)  # of the console's map
