"""A multipart push as one streamed body with Content-Length: iDRAC refuses chunks (facts T10).

The image is read piece by piece while it is sent; a 1.5 GB BFB costs no more memory than a BIOS.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from provisioner.ports import Secret, Unreachable, Upload


@contextmanager
def stream_multipart(upload: Upload, session: Secret | None) -> Iterator[aiohttp.MultipartWriter]:
    """Yield the body of one push, in the order of its parts, and close its file afterwards.

    Raises Unreachable (not executed) if the image cannot be opened: nothing was sent.
    """
    try:
        image = upload.file.open("rb")
    except OSError as error:
        raise Unreachable(f"{upload.file}: {error.strerror}", maybe_executed=False) from None
    with image:
        body = aiohttp.MultipartWriter("form-data")
        if upload.session_part and session is not None:
            key = body.append(session.reveal())
            key.set_content_disposition("form-data", name=upload.session_part)
        for name, content_type, content in upload.parts:
            part = body.append(content, {"Content-Type": content_type})
            part.set_content_disposition("form-data", name=name)
        part = body.append(image, {"Content-Type": "application/octet-stream"})
        part.set_content_disposition("form-data", name=upload.file_part, filename=upload.file_name)
        assert body.size is not None, "a body of known size is not sent in chunks"
        yield body
