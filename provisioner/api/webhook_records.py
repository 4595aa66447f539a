"""Records of webhooks at the API: a receiver, its undelivered events, and bodies of requests."""

from __future__ import annotations

from pydantic import Field, field_validator

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant, InstantOrNone

PEM_MAX = 100_000  # characters of certificates
LINE = r"^[^\x00-\x1f\x7f]*$"


class WebhookView(Record):
    """A receiver, and the progress of its deliveries."""

    name: str
    url: str
    kinds: tuple[str, ...]
    nodes: tuple[str, ...]
    tenant: str
    ca: str
    pending: int
    dead: int
    delivered: int
    delivered_at: InstantOrNone
    paused_why: str
    made_at: Instant


class WebhookList(Record):
    """All receivers, by name."""

    items: tuple[WebhookView, ...]


class DeadLetter(Record):
    """An event that could not be delivered."""

    seq: int
    event: str
    at: Instant
    kind: str
    node: str
    tries: int
    error: str


class DeadLetters(Record):
    """Undelivered events, the oldest first; 1,000 at most."""

    items: tuple[DeadLetter, ...]


class NewWebhook(Record):
    """The body of a receiver, new or instead of the present one."""

    url: str = Field(min_length=1, max_length=1000, description="URL to which events are posted.")
    secret: str = Field(
        "",
        max_length=200,
        repr=False,
        description="whsec_...: signs what is sent. An existing receiver keeps its secret.",
    )
    kinds: tuple[str, ...] = Field(("*",), max_length=64, description="Globs of event kinds.")
    nodes: tuple[str, ...] = Field(("*",), max_length=64, description="Globs of nodes.")
    tenant: str = Field("", max_length=64, description="Send only notices to this tenant.")
    ca: str = Field(
        "", max_length=PEM_MAX, description="PEM of the CAs of the receiver's certificate."
    )
    after: int | None = Field(
        None,
        ge=0,
        description="Begin after this row; by default from now on. An existing one goes on.",
    )
    plain: bool = Field(default=False, description="Allow http instead of https.")


class WebhookPatch(Record):
    """A merge patch of a receiver. Its secret has a request of its own."""

    url: str | None = Field(
        None, min_length=1, max_length=1000, description="URL to which events are posted."
    )
    kinds: tuple[str, ...] | None = Field(
        None, max_length=64, description="Globs of event kinds; null: all."
    )
    nodes: tuple[str, ...] | None = Field(
        None, max_length=64, description="Globs of nodes; null: all."
    )
    tenant: str | None = Field(
        None, max_length=64, description="Send only notices to this tenant; null: all events."
    )
    ca: str | None = Field(
        None,
        max_length=PEM_MAX,
        description="PEM of the CAs of the receiver's certificate; null: the system's.",
    )
    paused_why: str | None = Field(
        None,
        max_length=200,
        pattern=LINE,
        description="Reason of a pause, for other people; null: events are sent.",
    )
    plain: bool = Field(default=False, description="Allow http instead of https.")

    @field_validator("url")
    @classmethod
    def _check(cls, url: str | None) -> str:
        if url is None:
            raise ValueError("a receiver has a URL: it cannot be removed")
        return url


class NewSecret(Record):
    """The body of a rotation: the new secret, or the confirmation that the receiver has it."""

    secret: str = Field(
        "", max_length=200, repr=False, description="New secret (whsec_...), which signs too."
    )
    done: bool = Field(
        default=False, description="Confirm that the receiver has it: the old one signs no more."
    )


class Letters(Record):
    """The selection of undelivered events."""

    seq: int | None = Field(None, ge=1, description="Number of one event; by default all.")


class Pause(Record):
    """The body of a pause."""

    why: str = Field(
        min_length=1, max_length=200, pattern=LINE, description="Reason, for other people."
    )
