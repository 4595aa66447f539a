"""Settings of the REST API and its access: a part of `Settings`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from provisioner.model.access import ChangeKind, SessionLimits
from provisioner.model.base import Record

# ------------------------------------------------------------------------------
# Settings of several daemons on one database: a part of `Settings`.


class ClusterSettings(Record):
    """Used only with `--database`: one daemon with its own file has no peers."""

    lease_s: float = Field(
        10.0,
        ge=1.0,
        le=120.0,
        description="A daemon without a heartbeat in the database for this long loses its lease; "
        "it stops acting after three quarters of it.",
    )
    database_wait_max_s: float = Field(
        60.0,
        ge=10.0,
        le=3600.0,
        description="A daemon that has waited this long for one transaction of a PostgreSQL "
        "database ends with its reason, and is started again. It is reported after 5 s.",
    )
    clock_difference_max_s: float = Field(
        30.0,
        ge=1.0,
        le=600.0,
        description="A daemon whose machine's clock is further from the database's than this is "
        "refused at its start, and ends. It is reported above a second.",
    )


# ------------------------------------------------------------------------------
# Settings of scheduled backups: a part of `Settings`.


class BackupSettings(Record):
    """Backups that the daemon makes by itself. Of several daemons, one has a directory."""

    backup_directory: str = Field(
        "", description="Where the daemon backs its database up, on another disk; empty: nowhere."
    )
    backup_every_h: float = Field(
        24.0, ge=0.1, le=720, description="Hours between two scheduled backups."
    )
    backup_keep: int = Field(
        14, ge=1, le=1000, description="Scheduled backups that are kept; older ones are removed."
    )


class ApiSettings(Record):
    """Where the API is served, its limits, and the identities that it accepts."""

    api_serve: bool = Field(default=True, description="The daemon serves the REST API.")
    api_host: str = Field("127.0.0.1", description="Address that the API is served at.")
    api_port: int = Field(8443, ge=0, le=65535, description="Its port; 0: a free one.")
    api_names: tuple[str, ...] = Field(
        (), max_length=32, description="Names and addresses of the API beside `api_host`, for TLS."
    )
    api_certificate: str = Field(
        "", description="PEM file with the API's own certificate and key; empty: one of our own CA."
    )
    api_certificate_key: str = Field(
        "", description="PEM file of its key; empty: it is in the same file."
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
    api_first_s: float = Field(
        10.0,
        gt=0,
        le=300,
        description="A caller whose address proved no identity within a day sends its first "
        "request within this of its connection, TLS included.",
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
    events_kept_max: int = Field(
        256,
        ge=0,
        le=32768,
        description="Of these, connections of proved senders that stay open between events.",
    )
    events_kept_s: float = Field(
        3600.0, gt=0, description="Such a connection is closed after so long without an event."
    )
    events_process: bool = Field(
        default=False,
        description="Take events in a process of its own; not with `--alert-sources`.",
    )
    artifacts_connections_max: int = Field(
        256, ge=8, le=65536, description="Connections of devices that pull artifacts from us."
    )
    artifacts_connections_per_peer: int = Field(
        16, ge=4, le=65536, description="Connections of one device to the listener of artifacts."
    )
    api_upload_max_bytes: int = Field(
        64 << 30,
        ge=0,
        le=1 << 40,
        description="Largest file that the API takes into the artifact store; 0: it takes none.",
    )
    api_streams_max: int = Field(
        128, ge=1, le=8192, description="Event streams that are open at the same time."
    )
    api_streams_per_caller: int = Field(
        16, ge=1, le=8192, description="Event streams of one caller at the same time."
    )
    api_stream_life_s: float = Field(
        14400.0, gt=0, description="A stream is ended after it; clients go on where it ended."
    )
    api_requests_per_min: int = Field(
        3000, ge=1, description="Requests of one caller a minute; of an address without a token."
    )
    api_requests_at_once: int = Field(
        64, ge=1, le=65536, description="Requests of one caller that are under way."
    )
    api_changes_per_min: int = Field(
        120, ge=1, description="Changes that one caller may ask for in a minute."
    )
    api_changes_at_once: int = Field(
        16, ge=1, le=64, description="Changes of one caller that are under way; all: 64."
    )
    api_audit_rows_per_h: int = Field(
        2400, ge=2, description="Rows that one caller writes into the journal; a change is two."
    )
    api_failed_logins_per_min: int = Field(
        30, ge=1, description="Logins of one address that may fail in a minute."
    )
    api_keys_per_caller: int = Field(
        20_000, ge=1, description="Idempotency keys that are kept for one caller."
    )
    api_waiting_per_caller: int = Field(
        100, ge=1, description="Changes of one caller that wait for another person's approval."
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
    api_tenant_power: tuple[Literal["on", "off", "cycle"], ...] = Field(
        (),
        description="Acts of power that tenants may ask for on nodes that are released to them: "
        "on, off, cycle; none: they ask the operators.",
    )
    api_approval_h: float = Field(
        24.0, gt=0, description="A change without an approval within this is not made."
    )
    api_session_h: float = Field(
        12.0, gt=0, le=168, description="A browser's session ends this long after its sign-in."
    )
    api_session_idle_s: float = Field(
        1800.0, ge=60, le=604800, description="A browser's session ends after this time unused."
    )
    api_session_proof_s: float = Field(
        300.0,
        ge=10,
        le=86400,
        description="Within this time of a sign-in, a session may change what outlives it.",
    )
    api_sessions_per_person: int = Field(
        8, ge=1, le=100, description="Sessions of one person; a further one ends the oldest."
    )
    api_oidc_issuer: str = Field("", description="OIDC provider; empty: local tokens only.")
    api_oidc_audience: str = Field("", description="Audience that its tokens for this API name.")
    api_oidc_roles_claim: str = Field("roles", description="Claim with a caller's roles.")
    api_oidc_role_prefix: str = Field("", description="Prefix of our roles in that claim.")
    api_oidc_methods: tuple[str, ...] = Field(
        (),
        max_length=16,
        description="Values of `amr` of which its tokens need one, as mfa; empty: any will do.",
    )
    api_oidc_client_id: str = Field(
        "", description="The console's own client id there; empty: people sign in with a token."
    )
    api_oidc_redirect_url: str = Field(
        "", description="Where that client's codes go: https://HOST:PORT/console/signed-in."
    )
    api_oidc_secret_file: str = Field(
        "", description="File with that client's secret; empty: a public client, with PKCE alone."
    )
    api_oidc_scopes: tuple[str, ...] = Field(
        ("openid",), min_length=1, max_length=16, description="Scopes that a sign-in asks for."
    )
    api_oidc_device_client_id: str = Field(
        "", description="Client id of command lines there (device flow); empty: tokens only."
    )
    api_oidc_tenant_claim: str = Field("tenant", description="Claim with a tenant's name.")

    scim_token_file: str = Field(
        "",
        description="File with the token of the provider's SCIM client, or two while it is "
        "exchanged, a line each; empty: no SCIM.",
    )

    def session_limits(self) -> SessionLimits:
        return SessionLimits(
            whole_s=self.api_session_h * 3600,
            idle_s=self.api_session_idle_s,
            proof_s=self.api_session_proof_s,
            per_person=self.api_sessions_per_person,
        )
