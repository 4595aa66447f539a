"""`master.key.wrapped`: the master key as a key service sealed it, beside no key in clear.

The key in clear is removed only after the sealed one was opened again. A start with both files uses
the one in clear; after a crash in between, wrapping is done again.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pydantic import ValidationError

from provisioner.model.input_error import InputError
from provisioner.model.integrations.wrapped_key import KeyService, WrappedKey
from provisioner.ports.keys import OpenKeyService
from provisioner.ports.wire import Secret
from provisioner.store.database.data_directory import (
    check_private,
    sync_directory,
    write_private,
)
from provisioner.store.repositories.master_key import KEY_FILE, MasterKey

log = logging.getLogger(__name__)
WRAPPED_FILE = "master.key.wrapped"
FILE_MAX = 32 * 1024


def read_wrapped_key(directory: Path) -> WrappedKey | None:
    """Return the sealed key of a data directory; None if its key is in clear. Raises InputError."""
    file = directory / WRAPPED_FILE
    if not file.exists():
        return None
    try:
        check_private(file)
        with file.open("rb") as stream:
            return WrappedKey.model_validate_json(stream.read(FILE_MAX))
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise InputError(str(file), "", problem, "Check its owner and mode.") from None
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
        remedy = "Restore the file from your backup."
        raise InputError(str(file), where, "is no sealed master key", remedy) from None


async def open_wrapped_key(directory: Path, open_service: OpenKeyService) -> MasterKey | None:
    """Return the master key that a service has to open; None if it is in clear. Raises InputError.

    A sealed key beside one in clear is not asked for: wrapping was cut off, and protects nothing.
    """
    wrapped = read_wrapped_key(directory)
    if wrapped is None:
        return None
    if (directory / KEY_FILE).exists():
        log.warning("the master key is in clear beside %s: wrap it again", WRAPPED_FILE)
        return None
    text = await open_service(wrapped.service).unwrap(wrapped.ciphertext)
    key = MasterKey.parse(text.reveal(), wrapped.service.address)
    if key.id != wrapped.key_id:
        problem = f"opened key {key.id}, and {WRAPPED_FILE} is of key {wrapped.key_id}"
        remedy = "Restore the file from your backup."
        raise InputError(wrapped.service.address, "", problem, remedy)
    return key


async def wrap_key(
    key: MasterKey, service: KeyService, directory: Path, open_service: OpenKeyService
) -> WrappedKey:
    """Have a service seal the key, open it again as a proof, and remove the one in clear."""
    wrapping = open_service(service)
    text = key.text()
    ciphertext = await wrapping.wrap(Secret(text))
    if (await wrapping.unwrap(ciphertext)).reveal() != text:
        problem = "the service opened another text than it had sealed"
        raise InputError(service.address, "", problem, "Is its key one for encryption?")
    wrapped = WrappedKey(service=service, ciphertext=ciphertext, key_id=key.id)
    following = directory / f"{WRAPPED_FILE}.next"
    following.unlink(missing_ok=True)
    write_private(following, wrapped.model_dump_json(indent=2).encode() + b"\n")
    following.replace(directory / WRAPPED_FILE)
    sync_directory(directory)
    _remove(directory / KEY_FILE)
    return wrapped


def unwrap_key(key: MasterKey, directory: Path) -> None:
    """Put the key in clear again, and remove the sealed one."""
    file = directory / KEY_FILE
    if not file.exists():
        write_private(file, key.text().encode() + b"\n")
    _remove(directory / WRAPPED_FILE)


def _remove(file: Path) -> None:
    """Overwrite a file and remove it. A drive may keep copies of blocks nevertheless."""
    if not file.exists():
        return
    with file.open("r+b") as stream:
        stream.write(b"\0" * file.stat().st_size)
        stream.flush()
        os.fsync(stream.fileno())
    file.unlink()
    sync_directory(file.parent)
