"""Integrations: packages that bring the core to another system, found by their entry points.

The core never imports one. Each registers one `Integration` under the entry-point group
`gpu_provisioner.integrations`; what it offers stands there as `module:name`, and that module is
imported only once a site has switched the integration on. The module with the registration itself
must stay light: the daemon and an unknown command read it on every start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from provisioner.model.input_error import InputError

if TYPE_CHECKING:  # a command that sends one request loads neither ports nor settings
    from pathlib import Path

    from provisioner.model.integrations.webhook import JournalRow, PostOutcome, Webhook
    from provisioner.model.integrations.wrapped_key import KeyService
    from provisioner.model.matrix import Matrix
    from provisioner.ports import BmcTransport, Clock, Secret
    from provisioner.ports.agents import Consoles, SimulatedSite
    from provisioner.ports.alerts import AuditSink
    from provisioner.ports.certificates import KeyWrapping
    from provisioner.ports.doors import Directory, Door
    from provisioner.ports.inband import PlaybookRunner, Remote, Run, RunRepository, TaskOutput
    from provisioner.ports.isolation import Membership, Partitions, Pdu, UfmAddress
    from provisioner.ports.storage import Spaces
    from provisioner.ports.store import Rehearsals
    from provisioner.ports.telemetry import Metrics, Telemetry
    from provisioner.ports.tickets import TicketSystem
    from provisioner.ports.webhooks import WebhookPosts
    from provisioner.settings import Settings
    from provisioner.settings.fabric import StorageSystem

GROUP = "gpu_provisioner.integrations"


def _never(_: Settings, __: Mapping[str, str]) -> bool:
    return False


@dataclass(frozen=True)
class Integration:
    """What one integration offers; an empty reference offers nothing of the kind.

    `tickets` takes (settings, clock, environ, ca_file), `audit_sinks` (settings, clock): each
    returns an asynchronous context with a `TicketSystem`, or with several `AuditSink`. `outlets`
    takes (settings.pdus, transport, environ) and returns each `Pdu` by its name. `outlet_users`
    takes (settings, outlets as PDU/OUTLET) and returns what is lost with each that feeds something
    beside nodes; it may raise InputError, and then none is switched. `adoption_sources` takes
    (file, options of `adopt`) and returns a list with `expected`, `tenants` and `refused`.
    `telemetry` takes (settings) and returns an asynchronous context with a `Telemetry`. `consoles`
    takes (settings) and returns `Consoles` by their protocol. `partitions` takes (address of UFM,
    file with CAs, `limited=`: a person confirmed the default partition) and returns a
    `Partitions`. `rehearsals` takes (matrix, settings) and returns a `Rehearsals`.
    `log_intake` takes (data directory, store, clock, settings, master key) and returns an
    asynchronous context with the open ports by name. `webhook_posts` takes (clock, settings) and
    returns an asynchronous context with a `WebhookPosts`, which is opened with the first post.
    `doors` takes (settings, clock, directory) and returns a sequence of `Door`.
    `leases` takes (lease files) and returns MAC and address of each lease in force.
    `playbooks` takes (folder of playbooks, folder for runs, `Remote`, `RunRepository`, clock,
    settings) and returns an asynchronous context with a `PlaybookRunner`; `play_tasks` takes (a
    `Run`, host) and returns the `TaskOutput` of each task there, and why there is none.
    `simulated_site` takes (the simulator's control socket) and returns a `SimulatedSite`.
    `key_service` takes (a `KeyService`) and returns a `KeyWrapping`.
    `signed_in_token` takes (a command's `Place`) and returns the token of its sign-in, or "".
    `spaces` takes (settings, secret, clock, file with CAs) and returns an asynchronous context with
    the `Spaces` of the storage system whose `provider` is the integration's name.
    `memberships` takes (settings, environ, file with CAs) and returns an asynchronous context with
    a sequence of `Membership`.
    `optic_series` takes (a folder, days that readings are kept) and returns what keeps and judges
    readings of optics (`control/watch/watched_nodes.OpticKeeper`).
    `loops` takes (the daemon's `Parts`) and returns loops by name, which the leading daemon runs.
    `routes` names a sequence of `api.route.Route`, always served; their handlers load the rest.
    `changes` names a mapping of `ChangeKind` to what carries it out and what foresees it, or None.
    `switch_system` is a `SwitchSystem`; it is always on, and loads its code with the first switch.
    `metrics` takes (settings, clock, token, version) and returns a `Metrics`.
    `commands` are typer applications or functions by the name of their command; a name of two words
    is a verb of another command: of `matrix`, or one that `cli/client/surface.py` names.
    """

    name: str
    about: str
    switched_on: Callable[[Settings, Mapping[str, str]], bool] = _never
    tickets: str = ""
    audit_sinks: str = ""
    outlets: str = ""
    outlet_users: str = ""
    adoption_sources: str = ""
    telemetry: str = ""
    consoles: str = ""
    partitions: str = ""
    rehearsals: str = ""
    leases: str = ""
    doors: str = ""
    key_service: str = ""
    playbooks: str = ""
    simulated_site: str = ""
    play_tasks: str = ""
    signed_in_token: str = ""
    log_intake: str = ""
    webhook_posts: str = ""
    spaces: str = ""
    memberships: str = ""
    optic_series: str = ""
    loops: str = ""
    routes: str = ""
    changes: str = ""
    metrics: str = ""
    switch_system: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)


@cache
def find_integrations() -> Sequence[Integration]:
    """Return every installed integration by name. Raises InputError for one that is broken."""
    from importlib.metadata import entry_points  # a twentieth of the time of `--help`

    found: dict[str, Integration] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        remedy = "Correct the package that brings it, or uninstall that package."
        try:
            loaded = entry.load()
        except Exception as error:  # any code of a stranger runs here
            problem = f"it cannot be loaded ({type(error).__name__}: {str(error)[:200]})"
            raise InputError("integration", entry.name, problem, remedy) from error
        if not isinstance(loaded, Integration) or loaded.name != entry.name:
            problem = f"{entry.value} is no Integration of this name"
            raise InputError("integration", entry.name, problem, remedy)
        if found.setdefault(loaded.name, loaded) is not loaded:
            problem = "two packages register this name"
            raise InputError("integration", entry.name, problem, "Uninstall one of them.")
    return tuple(found.values())


def load_reference(integration: Integration, reference: str) -> Any:
    """Return what `module:name` names, importing its module. Raises InputError."""
    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        remedy = "Install the package that brings it with what it needs."
        problem = f"{reference} cannot be loaded ({error})"
        raise InputError("integration", integration.name, problem, remedy) from error


def find_command(name: str) -> tuple[Integration, Any] | None:
    """Return the command of this name, and who brings it; None where nobody does."""
    for one in find_integrations():
        if name in one.commands and " " not in name:
            return one, load_reference(one, one.commands[name])
    return None


def find_verbs(noun: str) -> Sequence[tuple[str, Any]]:
    """Return the verbs that integrations bring to another command. Raises InputError."""
    return [
        (name.removeprefix(f"{noun} "), load_reference(one, reference))
        for one in find_integrations()
        for name, reference in one.commands.items()
        if name.startswith(f"{noun} ")
    ]


def find_adoption_sources() -> Callable[[Path, dict[str, Any]], Any]:
    """Return what reads the hosts of `adopt --from`. Raises InputError where nothing does."""
    reader: Callable[[Path, dict[str, Any]], Any]
    reader = _load_first("adoption_sources", "--from")
    return reader


def read_leased(files: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Return MAC and address of each lease in force in lease files. Raises InputError."""
    leased: tuple[tuple[str, str], ...] = _load_first("leases", "--leases")(files)
    return leased


def open_playbooks(
    playbooks: Path,
    work: Path,
    remote: Remote,
    rows: RunRepository,
    clock: Clock,
    settings: Settings,
) -> AbstractAsyncContextManager[PlaybookRunner]:
    """Return the runner of playbooks, to be entered. Raises InputError where nothing offers one."""
    opening = _load_first("playbooks", "--playbooks")
    opened: AbstractAsyncContextManager[PlaybookRunner]
    opened = opening(playbooks, work, remote, rows, clock, settings)
    return opened


def list_play_tasks(run: Run, host: str) -> tuple[Sequence[TaskOutput], str]:
    """Return a run's tasks on a host without secrets, and why there are none."""
    told: tuple[Sequence[TaskOutput], str] = _load_first("play_tasks", "--playbooks")(run, host)
    return told


def open_simulated_site(socket: Path) -> SimulatedSite:
    """Return the simulated site behind a control socket, which the caller closes."""
    site: SimulatedSite = _load_first("simulated_site", "--simulator")(socket)
    return site


def open_key_service(service: KeyService) -> KeyWrapping:
    """Return what seals and opens the master key at this service. Raises InputError."""
    made: KeyWrapping = _load_first("key_service", "the sealed master key")(service)
    return made


def find_signed_in_token(place: object) -> str:
    """Return a token that is still good of the sign-in at a daemon, "" for none."""
    token: str = _load_first("signed_in_token", "sign-in")(place)
    return token


def open_partitions(address: UfmAddress, ca_file: Path | None, *, limited: bool) -> Partitions:
    """Return the partitions of an InfiniBand fabric, which the caller closes. Raises InputError."""
    made: Partitions = _load_first("partitions", "--ufm")(address, ca_file, limited=limited)
    return made


def open_rehearsals(matrix: Matrix, settings: Settings) -> Rehearsals | None:
    """Return what rehearses campaigns; None where no installed integration does."""
    for one in find_integrations():
        if one.rehearsals:
            made: Rehearsals = load_reference(one, one.rehearsals)(matrix, settings)
            return made
    return None


def open_doors(settings: Settings, clock: Clock, directory: Directory) -> Sequence[Door]:
    """Return what answers paths of the API's server that are not its own. Raises InputError."""
    wanted = "scim_token_file" if settings.scim_token_file else ""
    chosen = _list_on("doors", settings, {}, wanted)
    return [
        door
        for one in chosen
        for door in load_reference(one, one.doors)(settings, clock, directory)
    ]


@asynccontextmanager
async def open_tickets(
    settings: Settings, clock: Clock, environ: Mapping[str, str], ca_file: Path | None = None
) -> AsyncIterator[TicketSystem | None]:
    """Yield the ticket system, None where the site has none. Raises InputError."""
    wanted = settings.ticket_system != "none"
    chosen = _list_on("tickets", settings, environ, "ticket_system" if wanted else "")
    if len(chosen) > 1:
        problem = f"{' and '.join(one.name for one in chosen)} both offer a ticket system"
        raise InputError("settings", "ticket_system", problem, "Switch one of them off.")
    if not chosen:
        yield None
        return
    opening = load_reference(chosen[0], chosen[0].tickets)
    async with opening(settings, clock, environ, ca_file) as tickets:
        yield tickets


@asynccontextmanager
async def open_receivers(
    settings: Settings, environ: Mapping[str, str]
) -> AsyncIterator[Sequence[Telemetry]]:
    """Yield the receivers of measurements, of every integration. Raises InputError."""
    wanted = "trace_endpoint" if settings.trace_endpoint else ""
    async with AsyncExitStack() as stack:
        chosen = _list_on("telemetry", settings, environ, wanted)
        opened = [load_reference(one, one.telemetry)(settings) for one in chosen]
        yield [await stack.enter_async_context(each) for each in opened]


def open_more_consoles(settings: Settings, environ: Mapping[str, str]) -> Mapping[str, Consoles]:
    """Return the consoles beside SSH, by the protocol of their door. Raises InputError."""
    consoles: dict[str, Consoles] = {}
    wanted = "consoles" if settings.consoles == "ssh_or_ipmi" else ""
    for one in _list_on("consoles", settings, environ, wanted):
        consoles |= load_reference(one, one.consoles)(settings)
    return consoles


def open_metrics(
    settings: Settings, clock: Clock, token: Secret | None, version: str
) -> Metrics | None:
    """Return what counts and serves metrics; None where no port is set. Raises InputError."""
    wanted = "" if settings.metrics_port is None else "metrics_port"
    for one in _list_on("metrics", settings, {}, wanted):
        made: Metrics = load_reference(one, one.metrics)(settings, clock, token, version)
        return made
    return None


def open_optic_series(
    data: Path, settings: Settings, environ: Mapping[str, str], evidence: object
) -> Any:
    """Return what keeps readings of optics in the data directory; None: nothing does."""
    for one in _list_on("optic_series", settings, environ, ""):
        make = load_reference(one, one.optic_series)
        return make(data / "optics", settings.watch_optics_days, evidence)
    return None


@asynccontextmanager
async def open_log_intake(
    data: Path,
    store: object,
    clock: Clock,
    settings: Settings,
    keys: object,
    environ: Mapping[str, str],
) -> AsyncIterator[Mapping[str, int]]:
    """Receive machines' logs; yield the ports that are open, by name. Raises InputError."""
    names = ("log_intake_port", "log_intake_udp_port")
    wanted = next((n for n in names if getattr(settings, n) is not None), "")
    ports: dict[str, int] = {}
    async with AsyncExitStack() as stack:
        for one in _list_on("log_intake", settings, environ, wanted):
            opening = load_reference(one, one.log_intake)(data, store, clock, settings, keys)
            ports |= await stack.enter_async_context(opening)
        yield ports


@asynccontextmanager
async def open_spaces(
    settings: Settings, clock: Clock, environ: Mapping[str, str], ca_file: Path | None = None
) -> AsyncIterator[Spaces | None]:
    """Yield the spaces of the site's storage system; None where it has none. Raises InputError."""
    chosen = settings.storage
    if chosen is None:
        yield None
        return
    offering = {one.name: one for one in find_integrations() if one.spaces}
    if chosen.provider not in offering:
        known = ", ".join(sorted(offering)) or "none"
        problem = f"no installed integration is called {chosen.provider} (storage: {known})"
        remedy = "Name one of them in `storage.provider`, or install the package that brings it."
        raise InputError("settings", "storage.provider", problem, remedy)
    one = offering[chosen.provider]
    opening = load_reference(one, one.spaces)
    async with opening(settings, read_storage_secret(chosen, environ), clock, ca_file) as spaces:
        yield spaces


@asynccontextmanager
async def open_memberships(
    settings: Settings, environ: Mapping[str, str], ca_file: Path | None = None
) -> AsyncIterator[Sequence[Membership]]:
    """Yield what else nodes are in for their tenants, of every integration. Raises InputError."""
    wanted = "racks_nvlink_manager" if settings.racks_nvlink_manager else ""
    found: list[Membership] = []
    async with AsyncExitStack() as stack:
        for one in _list_on("memberships", settings, environ, wanted):
            opening = load_reference(one, one.memberships)
            found += await stack.enter_async_context(opening(settings, environ, ca_file))
        yield tuple(found)


def read_storage_secret(chosen: StorageSystem, environ: Mapping[str, str]) -> Secret:
    """Return the secret of the storage system's login. Raises InputError where there is none."""
    from pathlib import Path

    from provisioner.ports.wire import Secret
    from provisioner.runtime.shipped import read_text

    file = chosen.secret_file
    value = read_text(Path(file)).strip() if file else environ.get(chosen.secret_env, "")
    if not value:
        problem = f"{file or chosen.secret_env or 'secret_env'} is empty or not set"
        raise InputError("settings", "storage", problem, "Give the secret there.")
    return Secret(value)


class _LatePosts:
    """`WebhookPosts` that is loaded and opened with the first post: a site may have no webhook."""

    def __init__(self, clock: Clock, settings: Settings, stack: AsyncExitStack) -> None:
        self._opening = (clock, settings)
        import asyncio  # a command of a client needs none of it

        self._stack = stack
        self._lock = asyncio.Lock()
        self._opened: WebhookPosts | None = None

    async def close(self) -> None:
        await self._stack.aclose()

    async def post(
        self, webhook: Webhook, row: JournalRow, secrets: Sequence[Secret], timeout_s: float
    ) -> PostOutcome:
        async with self._lock:
            opened = self._opened
            if opened is None:
                opening = _load_first("webhook_posts", "webhooks")(*self._opening)
                made: WebhookPosts = await self._stack.enter_async_context(opening)
                opened = self._opened = made
        return await opened.post(webhook, row, secrets, timeout_s)


@asynccontextmanager
async def open_posts(clock: Clock, settings: Settings) -> AsyncIterator[WebhookPosts]:
    """Yield what posts to webhooks."""
    async with AsyncExitStack() as stack:
        yield _LatePosts(clock, settings, stack)


@asynccontextmanager
async def open_audit_sinks(
    settings: Settings, clock: Clock, environ: Mapping[str, str]
) -> AsyncIterator[Sequence[AuditSink]]:
    """Yield the receivers of the exported journal, of every integration. Raises InputError."""
    names = ("audit_syslog", "audit_otlp_endpoint")
    wanted = next((n for n in names if getattr(settings, n)), "")
    sinks: list[AuditSink] = []
    async with AsyncExitStack() as stack:
        for one in _list_on("audit_sinks", settings, environ, wanted):
            opening = load_reference(one, one.audit_sinks)
            sinks.extend(await stack.enter_async_context(opening(settings, clock)))
        yield tuple(sinks)


def build_pdus(
    settings: Settings, transport: BmcTransport, environ: Mapping[str, str]
) -> Mapping[str, Pdu]:
    """Return the PDUs by name; Redfish ones live as long as `transport`. Raises InputError."""
    pdus: dict[str, Pdu] = {}
    for one in _list_on("outlets", settings, environ, "pdus" if settings.pdus else ""):
        pdus |= load_reference(one, one.outlets)(settings.pdus, transport, environ)
    return pdus


def find_outlet_users(settings: Settings, outlets: Sequence[str]) -> Mapping[str, str]:
    """Return what is lost with each of these outlets beside nodes. Raises InputError."""
    wanted = "racks_folder" if settings.racks_folder else ""
    users: dict[str, str] = {}
    for one in _list_on("outlet_users", settings, {}, wanted):
        users |= load_reference(one, one.outlet_users)(settings, outlets)
    return users


def list_loops(parts: Any) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
    """Return the loops of integrations that are on, by name. Raises InputError."""
    loops: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
    for one in _list_on("loops", parts.settings, {}, ""):
        loops |= load_reference(one, one.loops)(parts)
    return loops


def _load_first(offer: str, setting: str) -> Any:
    for one in find_integrations():
        if getattr(one, offer):
            return load_reference(one, getattr(one, offer))
    problem = f"no installed integration offers {offer.replace('_', ' ')}"
    raise InputError(setting, "", problem, "Install gpu-provisioner again.")


def _list_on(
    offer: str, settings: Settings, environ: Mapping[str, str], setting: str
) -> Sequence[Integration]:
    """Return who offers this and is on. Raises InputError where `setting` wants one, and none is.

    A site that configured its tickets or outlets must not run without them because a package is
    missing.
    """
    offering = [one for one in find_integrations() if getattr(one, offer)]
    chosen = [one for one in offering if one.switched_on(settings, environ)]
    if setting and not chosen:
        problem = f"no installed integration offers {offer.replace('_', ' ')}"
        raise InputError(
            "settings", setting, problem, "Install gpu-provisioner again, or unset it."
        )
    return chosen
