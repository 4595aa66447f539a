"""What OpenStack Ironic asks of a Redfish service, as a profile for DMTF's interop validator.

The requirements are those that Ironic publishes (redfish-interop-profiles, version 1.2.0,
Apache-2.0), written down anew: mandatory is what is not marked, "?" is recommended, "if" is asked
for only where it is implemented, "=" names what a link must lead to.
"""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]

HEALTH: Spec = {"Status": {"Health": "?", "State": "?"}}
REQUIREMENTS: dict[str, Spec] = {
    "Bios": {
        "*": "?",
        "Attributes": "",
        "AttributeRegistry": "?",
        "@Redfish.Settings": {"ETag": "?", "Messages": "?", "SettingsObject": "=Bios"},
        "!ResetBios": "?",
    },
    "Chassis": {"*": "?", "Power": "?=Power", "Thermal": "?=Thermal", "UUID": "?"},
    "ComputerSystemCollection": {"Members": {"MinCount": 1}},
    "ComputerSystem": {
        "Bios": "?",
        "BiosVersion": "?",
        "Boot": {
            "BootSourceOverrideEnabled": {
                "WriteRequirement": "Mandatory",
                "MinSupportValues": ["Once", "Continuous"],
            },
            "BootSourceOverrideMode": {"WriteRequirement": "Mandatory"},
            "BootSourceOverrideTarget": {
                "WriteRequirement": "Mandatory",
                "MinSupportValues": ["Pxe", "Hdd", "Cd"],
            },
        },
        "EthernetInterfaces": "?=EthernetInterfaceCollection",
        "IndicatorLED": "?",
        "Links": {"Chassis": "?", "ManagedBy": ""},
        "Manufacturer": "?",
        "MemorySummary": {"*": "?", "TotalSystemMemoryGiB": ""},
        "PowerState": "",
        "Processors": "?=ProcessorCollection",
        "SecureBoot": "?=SecureBoot",
        "SimpleStorage": "?=SimpleStorageCollection",
        "Storage": "?=StorageCollection",
        "VirtualMedia": "if=VirtualMediaCollection",
        "!Reset": {
            "ResetType": {
                "ReadRequirement": "Mandatory",
                "ParameterValues": ["On", "ForceOff", "ForceRestart"],
                "RecommendedValues": ["GracefulShutdown", "GracefulRestart", "Nmi"],
            }
        },
    },
    "Drive": {
        "*": "?",
        "CapacityBytes": "?",
        "MediaType": "",
        "Protocol": "",
        "Status": {"Health": "", "State": ""},
    },
    "EthernetInterface": {"*": "?", "MACAddress": "", "Status": {"Health": "", "State": ""}},
    "Manager": {"*": "?", "FirmwareVersion": "?"},
    "Processor": {"*": "?", "ProcessorArchitecture": "", "TotalThreads": ""},
    "SecureBoot": {"*": "?", "SecureBootEnable": "", "!ResetKeys": "?"},
    "ServiceRoot": {
        "Systems": "=ComputerSystemCollection",
        "SessionService": "?=SessionService",
        "Tasks": "?=TaskService",
        "UpdateService": "?=UpdateService",
    },
    "SessionService": {"*": "?"},
    "Storage": {
        "*": "?",
        "Drives": "",
        "Controllers": "=StorageControllerCollection",
        "Volumes": "=VolumeCollection",
    },
    "StorageControllerCollection": {"*": "if", "Members": {"MinCount": 1}},
    "TaskService": {"*": "?"},
    "UpdateService": {
        "*": "?",
        "!SimpleUpdate": {
            "ImageURI": {},
            "Targets": {"ReadRequirement": "Recommended"},
            "TransferProtocol": {},
        },
    },
    "VirtualMedia": {
        "Image": "",
        "Inserted": "?",
        "MediaTypes": "",
        "WriteProtected": "?",
        "!EjectMedia": "",
        "!InsertMedia": {
            "Image": {},
            "Inserted": {"ReadRequirement": "Recommended"},
            "WriteProtected": {"ReadRequirement": "Recommended"},
        },
    },
    "Volume": {"*": "?", "CapacityBytes": "", "Name": "", "RAIDType": "?"},
}
LEVELS = {"?": "Recommended", "if": "IfImplemented", "": "Mandatory"}
OWN_WORDS = frozenset({"MinCount", "MinSupportValues", "WriteRequirement", "ReadRequirement"})


def profile() -> Spec:
    """The profile document (DSP0272)."""
    return {
        "SchemaDefinition": "RedfishInteroperabilityProfile.v1_8_0",
        "ProfileName": "IronicRequirements",
        "ProfileVersion": "1.2.0",
        "Purpose": "What OpenStack Ironic requires of a Redfish service.",
        "OwningEntity": "test fixture",
        "ContactInfo": "none",
        "Protocol": {"MinVersion": "1.6.0"},
        "Resources": {name: _resource(spec) for name, spec in REQUIREMENTS.items()},
        "Registries": {"Base": {"MinVersion": "1.0.0", "Messages": {}}},
    }


def _resource(spec: Spec) -> Spec:
    made = _one(spec)
    actions = {k[1:]: v for k, v in spec.items() if k.startswith("!")}
    if actions:
        made["ActionRequirements"] = {
            name: {"ReadRequirement": LEVELS[v]} if isinstance(v, str) else {"Parameters": v}
            for name, v in actions.items()
        }
    return made


def _one(spec: Spec | str) -> Spec:
    if isinstance(spec, str):
        level, _, target = spec.partition("=")
        made: Spec = {"ReadRequirement": LEVELS[level]}
        return made | ({"Comparison": "LinkToResource", "Values": [target]} if target else {})
    if OWN_WORDS & set(spec):
        return dict(spec)
    made = {"ReadRequirement": LEVELS[spec.get("*", "")]}
    parts = {k: _one(v) for k, v in spec.items() if k != "*" and not k.startswith("!")}
    return made | ({"PropertyRequirements": parts} if parts else {})
