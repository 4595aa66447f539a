"""The sessions of agents, in memory and in rows; the token is in the vault alone.

Rule: memory is changed first and without an await, so that two requests that come at once never
both get a token; then the row is written; then it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from provisioner.adapters.agent.protocol import node_uuid
from provisioner.model.agent import AgentSession
from provisioner.ports import AgentRepository, Credentials, Secret

BOOT_TOKEN_CHARS = 64  # as long as the slot of an image (`execution/artifacts/artifacts.py`)
NewToken = Callable[[], str]  # at least 32 characters (ironic-python-agent 13.0.0, agent.py)


class Sessions:
    """The sessions of one daemon, which alone writes them; or, `shared`, of several.

    Shared ones are read anew whenever they are needed: a ramdisk may call any daemon.
    """

    def __init__(
        self,
        rows: AgentRepository,
        credentials: Credentials,
        new_token: NewToken,
        *,
        shared: bool = False,
    ) -> None:
        self._rows = rows
        self._credentials = credentials
        self._new_token = new_token
        self._shared = shared
        self._known: dict[str, AgentSession] | None = None  # by node
        self._tokens: dict[str, str] = {}

    async def read_all(self) -> Sequence[AgentSession]:
        return tuple((await self._load()).values())

    async def find_session(self, node: str) -> AgentSession | None:
        return (await self._load()).get(node)

    async def by_uuid(self, uuid: str) -> AgentSession | None:
        """Return the session of the node that agents call by `uuid`."""
        return next((s for s in await self.read_all() if s.uuid == uuid), None)

    async def begin(
        self,
        node: str,
        macs: Sequence[str],
        now: float,
        until: float,
        *,
        through_boot: bool = False,
    ) -> str:
        """Begin a new session; the token of the earlier one is invalid from here on.

        `through_boot`: returns the token, which counts as handed out. Else "": a lookup gets it.
        """
        await self._load()
        token = self._new_token().ljust(BOOT_TOKEN_CHARS, ".") if through_boot else ""
        self._tokens[node] = ""
        session = AgentSession(
            node=node,
            uuid=node_uuid(node),
            macs=tuple(macs),
            expected_at=now,
            until=until,
            handed_at=now if through_boot else 0.0,
        )
        await self.save(session)
        await self._credentials.remove(_name(node))
        if through_boot:
            await self._credentials.put(_name(node), "agent", Secret(token))
            self._tokens[node] = token
        return token

    async def end(self, session: AgentSession) -> None:
        self._tokens[session.node] = ""
        await self.save(session.model_copy(update={"dismissed": True, "asked": None}))
        await self._credentials.remove(_name(session.node))

    async def hand_out(self, session: AgentSession, peer: str, now: float) -> str:
        """Return the token of this boot, once; it is in the vault before this returns."""
        token = self._new_token()
        assert not session.handed_at
        self._tokens[session.node] = token
        handed = session.model_copy(update={"handed_at": now, "peer": peer})
        if self._shared and not await self._rows.hand_out_token(handed):
            return ""  # another daemon was asked at the same time, and was first
        self._remember(handed)
        await self._credentials.put(_name(session.node), "agent", Secret(token))
        await self.change(session.node)  # as it is now: it may have ended meanwhile
        return token

    async def token(self, session: AgentSession) -> str:
        """Return the token in force; "" if none was handed out, or it is invalid now."""
        if self._shared or session.node not in self._tokens:
            stored = await self._credentials.current(_name(session.node))
            token = stored[1].reveal() if stored and session.handed_at else ""
            if self._shared:
                return token
            self._tokens.setdefault(session.node, token)
        return self._tokens[session.node]

    async def change(self, node: str, **changes: object) -> None:
        """Change the node's session as it is now; on disk when this returns."""
        if self._shared:
            await self._rows.change_session(node, changes)
            return
        now = (await self._load())[node]
        await self.save(now.model_copy(update=changes))

    async def save(self, session: AgentSession) -> None:
        """Save the session; it is on disk when this returns."""
        self._remember(session)
        await self._rows.put_session(session)

    def _remember(self, session: AgentSession) -> None:
        assert self._known is not None
        self._known[session.node] = session

    async def _load(self) -> dict[str, AgentSession]:
        if self._shared or self._known is None:
            rows = {s.node: s for s in await self._rows.list_sessions()}
            if self._shared or self._known is None:  # no other daemon was faster
                self._known = rows
        return self._known


def _name(node: str) -> str:
    return f"{node}/agent"
