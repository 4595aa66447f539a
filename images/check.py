"""`make image-check`: every check of the image that takes seconds and needs no root.

    python -m images.check

The element tree resolves as diskimage-builder resolves it, every script is well formed, no source
is a git repository, every lock has hashes, and every Debian package that an element names is
locked. Exit code 0: no fault; 1: one line for each fault.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from diskimage_builder import element_dependencies

from images import iso, locks, ramdisk
from images.locks import BadInput
from images.ramdisk import ELEMENTS, LOCKS, PROFILES

# the phases of diskimage-builder (its documentation, "Phase subdirectories") in use here
PHASES = frozenset(
    {
        "root.d",
        "extra-data.d",
        "environment.d",
        "pre-install.d",
        "install.d",
        "post-install.d",
        "finalise.d",
        "cleanup.d",
    }
)
HOOK = re.compile(r"\d{2}-[a-z][a-z0-9-]*(\.bash)?")
SHELLCHECK = ("--severity=style", "--shell=bash", "--external-sources")
UNIT = re.compile(r"\A(#[^\n]*\n|\n|\[[A-Z][A-Za-z]*\]\n|[A-Z][A-Za-z]*=[^\n]*\n)*\Z")


def find_faults() -> Iterator[str]:
    """Yield every fault as one line."""
    yield from _check_resolution()
    yield from _check_hooks()
    yield from _check_shell()
    yield from _check_locks()
    yield from _check_packages()
    yield from _check_units()
    for profile in PROFILES.values():
        try:
            iso.require_cmdline(profile.cmdline)
        except BadInput as error:
            yield f"profile {profile.name}: {error}"


def resolve_elements(elements: tuple[str, ...]) -> dict[str, Path]:
    """Return name -> folder of these elements and their dependencies; raise like the builder."""
    names = ["ironic-python-agent-ramdisk", ramdisk.DISTRIBUTION, *elements]
    paths = ramdisk.element_path(Path(sys.prefix))
    return {name: Path(path) for name, path in element_dependencies.get_elements(names, paths)}


def _check_resolution() -> Iterator[str]:
    for profile in PROFILES.values():
        try:
            folders = resolve_elements(profile.elements)
        except Exception as error:  # its exceptions have no common base
            yield f"profile {profile.name}: {type(error).__name__}: {error}"
            continue
        for name, folder in sorted(folders.items()):
            for source in folder.glob("source-repository-*"):
                yield from _check_source(name, source)
    used = {e for p in PROFILES.values() for e in p.elements}
    for folder in sorted(ELEMENTS.iterdir()):
        if folder.name not in used:
            yield f"{folder.name}: no profile has this element"
        if not (folder / "README.md").is_file():
            yield f"{folder.name}: it has no README.md"


def _check_source(element: str, file: Path) -> Iterator[str]:
    """Yield a fault for each source of an element that no verified file replaces."""
    for line in file.read_text().splitlines():
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        name = fields[0].replace("-", "_")
        if fields[1] == "git" and name not in ramdisk.SOURCES:
            yield f"{element}: {fields[0]} would be fetched from git"


def _check_hooks() -> Iterator[str]:
    element_of: dict[tuple[str, str], str] = {}
    for folder in sorted(ELEMENTS.iterdir()):
        for phase in sorted(p for p in folder.glob("*.d") if p.is_dir()):
            if phase.name not in PHASES:
                yield f"{folder.name}/{phase.name}: no phase of diskimage-builder"
            for hook in sorted(phase.iterdir()):
                where = f"{folder.name}/{phase.name}/{hook.name}"
                if not HOOK.fullmatch(hook.name):
                    yield f"{where}: a hook's name must be two digits, a dash and a word"
                # the hooks of all elements share one folder in the chroot
                owner = element_of.setdefault((phase.name, hook.name), folder.name)
                if owner != folder.name:
                    yield f"{where}: the element {owner} has a hook of this name"
                sourced = phase.name == "environment.d"
                if bool(hook.stat().st_mode & 0o111) == sourced:
                    yield f"{where}: {'must not' if sourced else 'must'} be executable"
                if not sourced and not hook.read_text().startswith("#!/bin/bash\n#"):
                    yield f"{where}: does not begin with #!/bin/bash and a comment"


def list_scripts() -> list[Path]:
    """Return every shell script of the element tree."""
    hooks = [p for p in ELEMENTS.glob("*/*.d/*") if p.is_file()]
    programs = [*ELEMENTS.glob("*/bin/*"), *ELEMENTS.glob("*/static/usr/local/sbin/*")]
    return sorted([*hooks, *programs])


def _check_shell() -> Iterator[str]:
    for script in list_scripts():
        ended = subprocess.run(  # noqa: S603
            ("/bin/bash", "-n", str(script)), capture_output=True, text=True, check=False
        )
        if ended.returncode:
            yield f"{script.relative_to(ELEMENTS)}: {ended.stderr.strip()}"
    program = Path(sys.prefix) / "bin/shellcheck"
    if not program.exists() and shutil.which("shellcheck") is None:
        yield "shellcheck is missing; run make setup"
        return
    ended = subprocess.run(  # noqa: S603
        (str(program), *SHELLCHECK, "--format=gcc", *map(str, list_scripts())),
        capture_output=True,
        text=True,
        check=False,
    )
    yield from (ended.stdout + ended.stderr).replace(f"{ELEMENTS}/", "").splitlines()


def _check_locks() -> Iterator[str]:
    required = {"agent": "ironic-python-agent", "builder": "diskimage-builder"}
    for name, needed in required.items():
        try:
            pins = locks.parse_requirements((LOCKS / f"{name}.lock").read_text(), f"{name}.lock")
        except (OSError, BadInput) as error:
            yield f"{name}.lock: {error}"
            continue
        if needed not in pins:
            yield f"{name}.lock: {needed} is not in it"
        for line in (LOCKS / f"{name}.in").read_text().splitlines():
            name_part, _, version = line.partition("==")
            pinned = pins.get(locks.normalize_name(name_part.strip()))
            if (
                line
                and not line.startswith("#")
                and (pinned is None or (version and pinned.version != version))
            ):
                yield f"{name}.lock does not have {line}; run make image-lock"
    for file in ("debian.lock", "debian-build.lock", "bootloader.lock"):
        try:
            unlocked = [p.name for p in ramdisk.read_lock(LOCKS / file).values() if p.sha256 == "-"]
        except (OSError, BadInput) as error:
            yield f"{file}: {error}"
            continue
        yield from (f"{file}: {name} has no digest" for name in unlocked)


def _check_packages() -> Iterator[str]:
    """Check package names against `debian.lock`, which was written from an image."""
    locked_packages = (
        ramdisk.read_lock(LOCKS / "debian.lock") if (LOCKS / "debian.lock").is_file() else {}
    )
    for file in sorted(ELEMENTS.glob("*/package-installs.yaml")):
        for name, options in (yaml.safe_load(file.read_text()) or {}).items():
            not_in_image = isinstance(options, dict) and (
                options.get("uninstall") or "build-only" in options
            )
            if not not_in_image and name not in locked_packages:
                yield f"{file.parent.name}: {name} is not in debian.lock; build with --update-lock"


def _check_units() -> Iterator[str]:
    """Check that systemd's files are well formed, because systemd ignores typing errors."""
    for file in sorted(p for p in ELEMENTS.glob("*/static/etc/systemd/**/*") if p.is_file()):
        if not UNIT.fullmatch(file.read_text()):
            yield f"{file.relative_to(ELEMENTS)}: a line is neither section, setting nor comment"


def main() -> int:
    """Print every fault and return the exit code."""
    fault_lines = list(find_faults())
    for line in fault_lines:
        sys.stderr.write(f"{line}\n")
    names = ", ".join(PROFILES)
    sys.stdout.write(f"image-check: {len(list_scripts())} scripts, profiles {names}: ")
    sys.stdout.write(f"{len(fault_lines)} faults\n" if fault_lines else "all good\n")
    return 1 if fault_lines else 0


if __name__ == "__main__":
    sys.exit(main())
