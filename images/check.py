"""`make image-check`: everything about the image that can be checked in seconds and without root.

    python -m images.check

The element tree resolves as diskimage-builder resolves it, every script is well formed, no source
is a git repository, every lock has hashes, and every Debian package that an element names is
locked. Exit code 0: all good; 1: one line for each fault.
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

# phases of diskimage-builder (its documentation, "Phase subdirectories") that we use
PHASES = frozenset({
    "root.d", "extra-data.d", "environment.d", "pre-install.d", "install.d", "post-install.d",
    "finalise.d", "cleanup.d",
})  # fmt: skip
HOOK = re.compile(r"\d{2}-[a-z][a-z0-9-]*(\.bash)?")
SHELLCHECK = ("--severity=style", "--shell=bash", "--external-sources")
UNIT = re.compile(r"\A(#[^\n]*\n|\n|\[[A-Z][A-Za-z]*\]\n|[A-Z][A-Za-z]*=[^\n]*\n)*\Z")


def faults() -> Iterator[str]:
    """Every fault, one line each."""
    yield from _resolution()
    yield from _hooks()
    yield from _shell()
    yield from _locks()
    yield from _packages()
    yield from _units()
    for profile in PROFILES.values():
        try:
            iso.checked_cmdline(profile.cmdline)
        except BadInput as error:
            yield f"profile {profile.name}: {error}"


def resolved(elements: tuple[str, ...]) -> dict[str, Path]:
    """Name -> folder of these elements and all they depend on. Raises what the builder raises."""
    wanted = ["ironic-python-agent-ramdisk", ramdisk.DISTRIBUTION, *elements]
    paths = ramdisk.element_path(Path(sys.prefix))
    return {name: Path(path) for name, path in element_dependencies.get_elements(wanted, paths)}


def _resolution() -> Iterator[str]:
    for profile in PROFILES.values():
        try:
            found = resolved(profile.elements)
        except Exception as error:  # its exceptions have no common base
            yield f"profile {profile.name}: {type(error).__name__}: {error}"
            continue
        for name, folder in sorted(found.items()):
            for source in folder.glob("source-repository-*"):
                yield from _source(name, source)
    used = {e for p in PROFILES.values() for e in p.elements}
    for folder in sorted(ELEMENTS.iterdir()):
        if folder.name not in used:
            yield f"{folder.name}: no profile has this element"
        if not (folder / "README.md").is_file():
            yield f"{folder.name}: no README.md says what it is for"


def _source(element: str, file: Path) -> Iterator[str]:
    """Each source that an element fetches must be one that we replace by a verified file."""
    for line in file.read_text().splitlines():
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        name = fields[0].replace("-", "_")
        if fields[1] == "git" and name not in ramdisk.SOURCES:
            yield f"{element}: {fields[0]} would be fetched from git"


def _hooks() -> Iterator[str]:
    seen: dict[tuple[str, str], str] = {}
    for folder in sorted(ELEMENTS.iterdir()):
        for phase in sorted(p for p in folder.glob("*.d") if p.is_dir()):
            if phase.name not in PHASES:
                yield f"{folder.name}/{phase.name}: no phase of diskimage-builder"
            for hook in sorted(phase.iterdir()):
                where = f"{folder.name}/{phase.name}/{hook.name}"
                if not HOOK.fullmatch(hook.name):
                    yield f"{where}: a hook's name is two digits, a dash, a word"
                # all elements' hooks share one folder in the chroot
                other = seen.setdefault((phase.name, hook.name), folder.name)
                if other != folder.name:
                    yield f"{where}: the element {other} has a hook of this name"
                sourced = phase.name == "environment.d"
                if bool(hook.stat().st_mode & 0o111) == sourced:
                    yield f"{where}: {'must not' if sourced else 'must'} be executable"
                if not sourced and not hook.read_text().startswith("#!/bin/bash\n#"):
                    yield f"{where}: does not begin with #!/bin/bash and a comment"


def scripts() -> list[Path]:
    """Every shell script of the element tree."""
    hooks = [p for p in ELEMENTS.glob("*/*.d/*") if p.is_file()]
    programs = [*ELEMENTS.glob("*/bin/*"), *ELEMENTS.glob("*/static/usr/local/sbin/*")]
    return sorted([*hooks, *programs])


def _shell() -> Iterator[str]:
    for script in scripts():
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
        (str(program), *SHELLCHECK, "--format=gcc", *map(str, scripts())),
        capture_output=True,
        text=True,
        check=False,
    )
    yield from (ended.stdout + ended.stderr).replace(f"{ELEMENTS}/", "").splitlines()


def _locks() -> Iterator[str]:
    wanted = {"agent": "ironic-python-agent", "builder": "diskimage-builder"}
    for name, needed in wanted.items():
        try:
            found = locks.requirements((LOCKS / f"{name}.lock").read_text(), f"{name}.lock")
        except (OSError, BadInput) as error:
            yield f"{name}.lock: {error}"
            continue
        if needed not in found:
            yield f"{name}.lock: {needed} is not in it"
        for line in (LOCKS / f"{name}.in").read_text().splitlines():
            asked, _, version = line.partition("==")
            pinned = found.get(locks.canonical(asked.strip()))
            if (
                line
                and not line.startswith("#")
                and (pinned is None or (version and pinned.version != version))
            ):
                yield f"{name}.lock does not have {line}; run make image-lock"
    for file in ("debian.lock", "debian-build.lock", "bootloader.lock"):
        try:
            unlocked = [p.name for p in ramdisk.locked(LOCKS / file).values() if p.sha256 == "-"]
        except (OSError, BadInput) as error:
            yield f"{file}: {error}"
            continue
        yield from (f"{file}: {name} has no digest" for name in unlocked)


def _packages() -> Iterator[str]:
    """`debian.lock` is the record of names that exist: it was written from an image."""
    known = ramdisk.locked(LOCKS / "debian.lock") if (LOCKS / "debian.lock").is_file() else {}
    for file in sorted(ELEMENTS.glob("*/package-installs.yaml")):
        for name, options in (yaml.safe_load(file.read_text()) or {}).items():
            gone = isinstance(options, dict) and (
                options.get("uninstall") or "build-only" in options
            )
            if not gone and name not in known:
                yield f"{file.parent.name}: {name} is not in debian.lock; build with --update-lock"


def _units() -> Iterator[str]:
    """systemd's files have sections and settings, and nothing else; a typing error is silent."""
    for file in sorted(p for p in ELEMENTS.glob("*/static/etc/systemd/**/*") if p.is_file()):
        if not UNIT.fullmatch(file.read_text()):
            yield f"{file.relative_to(ELEMENTS)}: a line is neither section, setting nor comment"


def main() -> int:
    """Print every fault; the exit code."""
    found = list(faults())
    for line in found:
        sys.stderr.write(f"{line}\n")
    names = ", ".join(PROFILES)
    sys.stdout.write(f"image-check: {len(scripts())} scripts, profiles {names}: ")
    sys.stdout.write(f"{len(found)} faults\n" if found else "all good\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
