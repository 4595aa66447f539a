"""Protocols of everything outside of the daemon, and the only errors that they may raise.

The simulator implements the same protocols as the adapters for real hardware; no code above this
package can distinguish them.
"""

from provisioner.ports.agents import AgentAddress, AgentRepository, AgentResult, Agents
from provisioner.ports.alerts import AlertRepository, EventStreams
from provisioner.ports.credential_standings import CredentialStandings
from provisioner.ports.errors import (
    AccountLocked,
    Busy,
    CertificateChanged,
    CertificateUntrusted,
    DamagedRow,
    Fenced,
    HostKeyUnknown,
    LoginRefused,
    LookOnly,
    Malformed,
    NotGranted,
    PortError,
    StaleWrite,
    StoreFailed,
    TooLarge,
    Unreachable,
)
from provisioner.ports.inband import (
    HostShell,
    PlaybookCall,
    PlaybookResult,
    PlaybookRunner,
    Remote,
    Run,
    RunRepository,
    ShellCommand,
    ShellOutput,
)
from provisioner.ports.isolation import (
    FabricDelta,
    FabricStep,
    Isolation,
    Member,
    PartitionReads,
    Partitions,
)
from provisioner.ports.storage import (
    Credentials,
    Store,
)
from provisioner.ports.switch import Switch, Switches, SwitchFacts, SwitchPasswords, SwitchRefused
from provisioner.ports.wire import (
    BmcAddress,
    BmcTransport,
    Call,
    Clock,
    Reply,
    Secret,
    SwitchAddress,
    SwitchTransport,
    Upload,
)

__all__ = [
    "AccountLocked",
    "AgentAddress",
    "AgentRepository",
    "AgentResult",
    "Agents",
    "AlertRepository",
    "BmcAddress",
    "BmcTransport",
    "Busy",
    "Call",
    "CertificateChanged",
    "CertificateUntrusted",
    "Clock",
    "CredentialStandings",
    "Credentials",
    "DamagedRow",
    "EventStreams",
    "FabricDelta",
    "FabricStep",
    "Fenced",
    "HostKeyUnknown",
    "HostShell",
    "Isolation",
    "LoginRefused",
    "LookOnly",
    "Malformed",
    "Member",
    "NotGranted",
    "PartitionReads",
    "Partitions",
    "PlaybookCall",
    "PlaybookResult",
    "PlaybookRunner",
    "PortError",
    "Remote",
    "Reply",
    "Run",
    "RunRepository",
    "Secret",
    "ShellCommand",
    "ShellOutput",
    "StaleWrite",
    "Store",
    "StoreFailed",
    "Switch",
    "SwitchAddress",
    "SwitchFacts",
    "SwitchPasswords",
    "SwitchRefused",
    "SwitchTransport",
    "Switches",
    "TooLarge",
    "Unreachable",
    "Upload",
]
