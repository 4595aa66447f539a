"""Sets of settings as a person writes them, each value checked against the vocabulary. Pure.

A set is for the BIOS (with Secure Boot), for the host's BMC, for the BMC of each card, or for a
switch: the first takes effect at a boot, the others at once, and a profile pins them under kinds of
their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from provisioner.model.machine.settings import BIOS_SETTINGS, DPU_SETTINGS, SUPERNIC_SETTINGS
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.planning.machine_settings.resolution import ATTRIBUTE
from provisioner.quirks.meaning import VOCABULARY

PinnedSets = Mapping[str, Mapping[str, Mapping[str, str]]]  # kind -> name -> setting -> value
BIOS = BIOS_SETTINGS
BMC = "host.bmc_settings"
CARD = "card.bmc_settings"  # of each BlueField's own BMC
SWITCH = "switch.settings"
DPU = DPU_SETTINGS  # of a BlueField that runs a system of its own
SUPERNIC = SUPERNIC_SETTINGS  # of a BlueField in NIC mode
KINDS = (BIOS, BMC, CARD, DPU, SUPERNIC, SWITCH)
_GROUPS = {"bmc": BMC, "card": CARD, "card_boot": DPU, "switch": SWITCH}
_SHARED = ("ntp", "syslog")  # a switch has these too
_ATTRIBUTE_NAME = re.compile(r"[\x21-\x7e]{1,200}")
_VALUE = re.compile(r"[\x20-\x7e]{0,500}")
_SECRET = re.compile(r"passw|passphrase", re.IGNORECASE)
# attributes that carry out an act at the next boot and read as before after it: they would be
# drift for ever, and wipe again at each correction. BlueField-3 and DGX H100: the captured trees;
# PendingOperation: Supermicro's, by libredfish; a TPM's Clear: Dell's registry, beside states
_ACT = re.compile(r"EmmcWipe|NvmeWipe|ResetEfiVars|TpmOperation|PendingOperation.*", re.IGNORECASE)
_CLEARED = re.compile(r"Tpm.*", re.IGNORECASE)
_CLOCK = re.compile(r"DateTime|SystemTime|SystemDate", re.IGNORECASE)


def find_setting_fault(name: str, value: str) -> tuple[str, str] | None:
    if name.startswith(ATTRIBUTE):
        return _find_attribute_fault(name.removeprefix(ATTRIBUTE), value)
    meaning = VOCABULARY.get(name)
    if meaning is None:
        near = get_close_matches(name, VOCABULARY, 1)
        return (
            f"there is no setting '{name[:60]}'",
            (f"Is it '{near[0]}'? " if near else "")
            + f"A raw attribute is `{ATTRIBUTE}NAME`. Settings are {', '.join(VOCABULARY)}.",
        )
    if meaning.values and value not in meaning.values:
        return (
            f"'{value[:60]}' is no value of {name}",
            f"Write one of {', '.join(meaning.values)}.",
        )
    if meaning.pattern and not re.fullmatch(meaning.pattern, value):
        return f"'{value[:60]}' is no value of {name}", f"It is: {meaning.title}."
    return None


def _find_attribute_fault(name: str, value: str) -> tuple[str, str] | None:
    if not _ATTRIBUTE_NAME.fullmatch(name):
        return (
            "no name of an attribute",
            f"Write `{ATTRIBUTE}NAME`, as `inspect --settings` has it.",
        )
    if _SECRET.search(name):
        return "it holds a secret", "Secrets are never pinned: leave it out."
    if _ACT.fullmatch(name) or (_CLEARED.fullmatch(name) and value.strip().lower() == "clear"):
        return (
            "an action that reads as before after it, and would be carried out again and again",
            "Leave it out: drives, variables and the TPM are erased between tenants, by policy.",
        )
    if _CLOCK.fullmatch(name):
        return "the machine's clock, which never stands still", "Leave it out, and set `ntp`."
    if not _VALUE.fullmatch(value):
        return "no printable value of at most 500 characters", "Write the value as text."
    return None


def find_kind(name: str) -> str:
    """Return the component kind under which a setting can be pinned."""
    meaning = VOCABULARY.get(name)
    return BIOS if meaning is None else _GROUPS.get(meaning.group, BIOS)


def find_set_kind(settings: Mapping[str, str]) -> str:
    """Return a component kind that may hold a whole set; cards and switches share some with a
    host's BMC.
    """
    kinds = [find_kind(name) for name in settings]
    special = next((kind for kind in (CARD, DPU, SWITCH) if kind in kinds), BMC)
    return special if kinds[0] != BIOS else BIOS


def find_stranger(kind: str, settings: Mapping[str, str]) -> str | None:
    """Return a setting of a set that this kind does not hold, if there is one."""
    return next((name for name in settings if not _is_held(kind, name)), None)


def _is_held(kind: str, name: str) -> bool:
    own = find_kind(name)
    if kind == SUPERNIC:
        return name == "card_mode"  # in NIC mode a card shows no attributes
    if kind == SWITCH:
        return own == SWITCH or name in _SHARED
    return own in (BMC, CARD) if kind == CARD else own == kind


def find_card_kind(bmc: str) -> str:
    """Return the kind of a card's sets of its start, by its name within the node: DPU_0, NIC_3."""
    return DPU if bmc.startswith("DPU") else SUPERNIC


def find_wrong_mode(kind: str, settings: Mapping[str, str]) -> str | None:
    """Return why a set cannot be pinned for cards of this kind: their name has their mode."""
    mode = {DPU: "dpu", SUPERNIC: "nic"}.get(kind)
    chosen = settings.get("card_mode", mode)
    if mode is None or chosen == mode:
        return None
    return f"it has card_mode {chosen}, and {kind} is for cards in {mode.upper()} mode"


def find_contradiction(settings: Mapping[str, str]) -> str | None:
    """Return why the settings of a set exclude each other; None: they do not."""
    order = settings.get("login_order", "local")
    if "tacacs" in order.split(",") and settings.get("tacacs", "off") == "off":
        return "login_order asks TACACS+, and the set has no server of it: add `tacacs`"
    return None


def select_machine_sets(matrix: Matrix) -> PinnedSets:
    """Return the sets that are pinned somewhere, and those on the way to them (`via`)."""
    sets: dict[str, dict[str, dict[str, str]]] = {}
    for kind in KINDS:
        pins = [p.pins.get(kind) for r in matrix.releases.values() for p in r.profiles.values()]
        names = {name for pin in pins if pin is not None for name in (pin.version, *pin.also)}
        names |= {name for edge in matrix.edges.get(kind, ()) for name in (edge.to, *edge.via)}
        for name in sorted(names & set(matrix.machine_settings)):
            sets.setdefault(kind, {})[name] = matrix.machine_settings[name]
    return sets


def find_pinned_setting(matrix: Matrix, node: Node, name: str) -> str | None:
    """Return the value that a node's profile pins for one setting; None if it pins none."""
    release = matrix.releases.get(node.release or "")
    profile = release.profiles.get(node.profile or "") if release is not None else None
    pin = profile.pins.get(find_kind(name)) if profile is not None else None
    return matrix.machine_settings.get(pin.version, {}).get(name) if pin is not None else None
