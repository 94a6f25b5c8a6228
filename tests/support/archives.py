"""Archives made in memory."""

import io
import tarfile
import zipfile
from collections.abc import Mapping


def zipped(files: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a .zip of files by name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def tarred(files: Mapping[str, bytes], *, link: str | None = None) -> bytes:
    """Return a .tar of files by name; `link` is the target of a symbolic link before them."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        if link is not None:
            member = tarfile.TarInfo("link")
            member.type, member.linkname = tarfile.SYMTYPE, link
            archive.addfile(member)
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()
