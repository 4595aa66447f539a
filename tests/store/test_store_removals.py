"""What people took away after a backup is not back after its restore: keys, hooks, permissions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from test_store_high_water import NOW, Work, one_write, put_back, served

from provisioner.model.adoption.capability import Capability, Grant, GrantScope
from provisioner.model.integrations.webhook import Webhook
from provisioner.model.recovery import (
    Revocation,
    RevokedKind,
)
from provisioner.model.tenant import Outside, Tenant, TenantKey, TenantUserData
from provisioner.store.database.backup import copy_file
from provisioner.store.database.high_water import REVOCATIONS_FILE, RevocationFile
from provisioner.store.repositories.removals import list_changes
from provisioner.store.sql_store import SqlStore


def key(name: str, text: str) -> TenantKey:
    kind = "ssh-ed25519"
    return TenantKey(name=name, public_key=f"{kind} {text}", added_by="ada", added_at=NOW)


def permit(name: str, *, granted: bool = True, at: float = NOW) -> Grant:
    return Grant(
        scope=GrantScope.NODE, name=name, capability=next(iter(Capability)), granted=granted, at=at
    )


def hook(name: str, url: str = "https://a.example/x") -> Webhook:
    return Webhook(name=name, url=url, made_at=NOW - 9.0)


RED = Tenant(
    name="red",
    vrf="RED",
    number=1,
    ssh_keys=(key("one", "AAAA"), key("two", "BBBB")),
    user_data=TenantUserData(version="v1", kind="script", size_bytes=1, set_by="ada", set_at=NOW),
    storage=("STORE", "OTHER"),
    outside=(
        Outside(switch="leaf", peer="10.0.0.1", remote_as=1, accepts=("10.0.0.0/8",)),
        Outside(switch="leaf", peer="10.0.0.2", remote_as=1),
    ),
)
BLUE = Tenant(name="blue", vrf="BLUE", number=2, ssh_keys=(key("one", "CCCC"),))


async def change(store: SqlStore, **fields: Any) -> None:
    red = next(t for t in await store.tenants.list() if t.name == "red")
    saved = red.model_copy(update=fields)
    await store.tenants.save(saved, new=False, nodes=(), request="r", now=NOW)


async def give(store: SqlStore) -> None:
    for tenant in (RED, BLUE):
        await store.tenants.save(tenant, new=True, nodes=(), request="r", now=NOW)
    await store.grants.put([permit("n1"), permit("n2")], NOW)
    for name in ("gone", "moved", "stays"):
        await store.webhooks.add(hook(name), None, "ada")


async def take(store: SqlStore) -> None:
    left = {"user_data": None, "storage": ("STORE",), "outside": RED.outside[1:]}
    await change(store, ssh_keys=RED.ssh_keys[:1], **left)
    blue = next(t for t in await store.tenants.list() if t.name == "blue")
    await store.tenants.remove(blue, now=NOW)
    # one is withdrawn, and one is an exception from a wider permission, newer than the backup
    withdrawn = [permit("n1", granted=False, at=NOW + 1), permit("n3", granted=False)]
    await store.grants.put(withdrawn, NOW)
    await store.webhooks.remove("gone", "ada", NOW)
    await store.webhooks.replace(hook("moved"), hook("moved", "https://b.example/x"), "ada", NOW)


def standing(directory: Path, work: Work | None = None) -> dict[str, Any]:
    """What tenants, webhooks and permissions stand in the database."""
    found: dict[str, Any] = {}

    async def read(store: SqlStore) -> None:
        if work is not None:
            await work(store)
        for tenant in await store.tenants.list():
            found[tenant.name] = (
                [k.name for k in tenant.ssh_keys],
                tenant.user_data is not None,
                list(tenant.storage),
                [o.peer for o in tenant.outside],
            )
        found["permits"] = {g.name: g.granted for g in await store.grants.list()}
        found["hooks"] = {
            s.webhook.name: not s.webhook.paused_why for s in await store.webhooks.list()
        }

    served(directory, "", read)
    return found


def test_what_people_removed_since_a_backup_is_not_back_after_its_restore(tmp_path: Path) -> None:
    directory, copy = tmp_path / "data", tmp_path / "copy.db"
    served(directory, "", give)
    copy_file(directory / "provisioner.db", copy)
    before = standing(directory)
    served(directory, "", take)
    put_back(directory, copy)

    after = standing(directory)

    assert before["red"] == (["one", "two"], True, ["STORE", "OTHER"], ["10.0.0.1", "10.0.0.2"])
    assert after["red"] == (["one"], False, ["STORE"], ["10.0.0.2"])
    assert after["blue"] == ([], False, [], [])  # its ports are a difference that a person settles
    assert after["permits"] == {"n1": False, "n2": True, "n3": False}
    # the old address gets nothing before a person has looked at it
    assert after["hooks"] == {"moved": False, "stays": True}
    put_back(directory, copy)  # nor after a second restore
    assert standing(directory) == after


def test_what_people_gave_after_a_restore_stays(tmp_path: Path) -> None:
    directory, copy = tmp_path / "data", tmp_path / "copy.db"
    served(directory, "", give)
    copy_file(directory / "provisioner.db", copy)
    served(directory, "", take)
    put_back(directory, copy)
    served(directory, "")

    async def again(store: SqlStore) -> None:
        await change(store, ssh_keys=RED.ssh_keys)
        await store.grants.put([permit("n1", at=2 * NOW)], NOW)

    given = standing(directory, again)
    served(directory, "")

    assert given["red"][0] == ["one", "two"]
    assert given["permits"]["n1"] is True
    assert standing(directory) == given  # a start without a restore takes nothing away


def test_a_copy_that_is_newer_than_the_file_keeps_what_the_file_never_saw(tmp_path: Path) -> None:
    directory, copy = tmp_path / "data", tmp_path / "copy.db"
    served(directory, "", give)
    lines = (directory / REVOCATIONS_FILE).read_bytes()
    served(directory, "", partial(change, ssh_keys=(*RED.ssh_keys, key("new", "DDDD"))))
    copy_file(directory / "provisioner.db", copy)
    served(directory, "", one_write)
    (directory / REVOCATIONS_FILE).write_bytes(lines)  # of another daemon, which was away
    put_back(directory, copy)

    assert standing(directory)["red"][0] == ["one", "two", "new"]


def test_the_file_keeps_one_line_for_each_that_stands(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    served(directory, "", give)
    served(directory, "", take)
    served(directory)

    lines = [(r.kind, r.id) for r in RevocationFile(directory).read()]

    assert len(lines) == len(set(lines)) == 2 + 3 + 3


def test_a_damaged_row_is_not_taken_for_one_that_is_gone() -> None:
    subject = (RevokedKind.TENANT, "red")
    line = Revocation(kind=RevokedKind.TENANT, id="red", at=0.0, keep=("x",), generation=3)

    assert list_changes({subject: line}, {subject: None}, NOW) == []
    assert list_changes({subject: line}, {subject: line}, NOW) == []
    (gone,) = list_changes({subject: line}, {}, NOW)
    assert (gone.keep, gone.generation, gone.at) == ((), 3, NOW)
