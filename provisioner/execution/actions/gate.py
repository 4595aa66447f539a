"""The gate that every act passes which nothing undoes, at its edge: immediately before the effect.

The rules are the table of `planning/lifecycle/destruction.py`; here its facts are read, from rows
that may have changed since the act was decided upon. `once` asks for acts that have `destroys`.
"""

from __future__ import annotations

from provisioner.execution.actions.hold import Hold
from provisioner.model.outcome import Blocker
from provisioner.planning.lifecycle.destruction import (
    TABLE,
    Destruction,
    Facts,
    Need,
    judge_destruction,
)
from provisioner.ports import Credentials, Secret

_OF_CASES = frozenset({Need.GROUND, Need.FEW, Need.ORDERED, Need.CLEAN})


async def pass_gate(
    hold: Hold,
    act: Destruction,
    *,
    keeps: bool = False,
    stored: bool = False,
    begins: bool = False,
) -> Blocker | None:
    """Return why the act must not be carried out on the operation's node now; None: it may.

    `keeps`: the site returns nodes to their tenants unerased. `stored`: the password that follows
    is in the vault. `begins`: the host is booted for it next, and the gate is asked again then.
    """
    needs = TABLE[act].needs
    node = await hold.read_node()
    case = await hold.get_case() if _OF_CASES & set(needs) else None
    few = Need.FEW in needs
    facts = Facts(
        node=node,
        case=case,
        nodes=await hold.list_nodes() if few else (),
        cases=await hold.list_open_cases() if few and case is not None else (),
        keeps=keeps,
        stored=stored,
    )
    later = (Need.BOOTED,) if begins else ()
    return judge_destruction(act, hold.operation.node, facts, later)


async def pass_login_gate(credentials: Credentials, name: str, new: Secret) -> Blocker | None:
    """Return why a device must not get this password as its only one: it is not stored."""
    stored = await is_stored(credentials, name, new)
    return judge_destruction(Destruction.LOGIN, name, Facts(node=None, stored=stored))


async def is_stored(credentials: Credentials, name: str, new: Secret) -> bool:
    """Return whether the vault has this password as the one that follows."""
    pending = await credentials.pending(name)
    return pending is not None and pending[1].reveal() == new.reveal()
