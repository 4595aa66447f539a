"""Route of the people that the directory outside told of: who is active, and who left when."""

from __future__ import annotations

from collections import defaultdict

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.route import VIEWERS, Route
from provisioner.model.base import Record
from provisioner.model.directory import EntryKind, Standing
from provisioner.model.times.instant import Instant, InstantOrNone

TAG = "access"


class PersonView(Record):
    """A person of the directory; only its client there changes it."""

    name: str = Field(description="Name that the directory gives the person.")
    names: tuple[str, ...] = Field(description="All names by which the person may come.")
    standing: Standing = Field(
        description="`inactive` and `gone` have no session, token and approval here."
    )
    groups: tuple[str, ...] = Field(description="Groups of the directory with the person.")
    left_at: InstantOrNone = Field(
        description="When the directory last told of one that left; null: it is active."
    )
    made_at: Instant = Field(description="When the directory told of the person first.")


class PersonList(Record):
    """People of the directory."""

    items: tuple[PersonView, ...] = Field(description="People, the first told of first.")
    groups: tuple[str, ...] = Field(description="Groups of the directory, which give no role.")


async def list_people(ask: Ask) -> Reply:
    directory = ask.parts.store.directory
    groups = await directory.list(EntryKind.GROUP)
    of: dict[str, list[str]] = defaultdict(list)
    for group in groups:
        for member in group.body.get("members", ()):
            of[str(member.get("value"))].append(group.name)
    people = (
        PersonView(
            name=p.name,
            names=p.names,
            standing=p.standing,
            groups=tuple(of[p.id]),
            left_at=0.0 if p.standing is Standing.ACTIVE else p.changed_at,
            made_at=p.made_at,
        )
        for p in await directory.list(EntryKind.PERSON, gone=True)
    )
    return Reply(PersonList(items=tuple(people), groups=tuple(g.name for g in groups)))


ROUTES = (
    Route(
        "GET",
        "/people",
        "list_people",
        TAG,
        "List people that the identity provider told of: who is active, who left and when.",
        VIEWERS,
        list_people,
        {200: PersonList},
        heavy=True,
    ),
)
