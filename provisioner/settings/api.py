"""Settings of the REST API and of who may use it: a part of `Settings`."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.access import ChangeKind
from provisioner.model.base import Record


class ApiSettings(Record):
    """Where the API is served, how much at once, and whom it believes."""

    api_serve: bool = Field(default=True, description="The daemon serves the REST API.")
    api_host: str = Field("127.0.0.1", description="Address that the API is served at.")
    api_port: int = Field(8443, ge=0, le=65535, description="Its port; 0: a free one.")
    api_names: tuple[str, ...] = Field(
        (), max_length=32, description="Names and addresses of the API beside `api_host`, for TLS."
    )
    api_certificate: str = Field(
        "", description="PEM file with the API's own certificate and key; without: our own CA's."
    )
    api_connections_max: int = Field(
        512, ge=8, le=65536, description="Connections to the API that are open at the same time."
    )
    api_connections_per_peer: int = Field(
        128,
        ge=4,
        le=65536,
        description="Connections of one address; more where callers share one, as behind a proxy.",
    )
    agents_connections_max: int = Field(
        512, ge=8, le=65536, description="Connections of maintenance agents at the same time."
    )
    agents_connections_per_peer: int = Field(
        16, ge=4, le=65536, description="Connections of one maintenance agent."
    )
    events_connections_max: int = Field(
        512, ge=8, le=65536, description="Connections to the listener of events at the same time."
    )
    events_connections_per_peer: int = Field(
        64, ge=4, le=65536, description="Connections of one BMC or alert source to it."
    )
    api_streams_max: int = Field(
        128, ge=1, le=8192, description="Event streams that are open at the same time."
    )
    api_idle_s: float = Field(
        30.0, gt=0, le=3600, description="A connection without a whole request is closed after it."
    )
    api_wait_s: float = Field(
        20.0, ge=0, le=300, description="A change that takes longer is answered by its operation."
    )
    api_keys_keep_h: float = Field(
        24.0, gt=0, description="Idempotency keys and the answers to them are kept this long."
    )
    api_four_eyes: tuple[ChangeKind, ...] = Field(
        (), description="Changes that another person has to approve, as docs/access.md lists them."
    )
    api_approval_h: float = Field(
        24.0, gt=0, description="A change that nobody approved within this is not made."
    )
    api_oidc_issuer: str = Field("", description="OIDC provider; without: local tokens only.")
    api_oidc_audience: str = Field("", description="What its tokens for us name as audience.")
    api_oidc_roles_claim: str = Field("roles", description="Claim with a caller's roles.")
    api_oidc_role_prefix: str = Field("", description="What our roles begin with in that claim.")
    api_oidc_tenant_claim: str = Field("tenant", description="Claim with a tenant's name.")
