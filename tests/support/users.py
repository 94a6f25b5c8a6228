"""Another user, as whom a test of permissions runs where the tests are root's: permission bits do not bind root."""

import ctypes
import os
import stat
import sys
from pathlib import Path

NOBODY = 65534
_PROJECT = Path(__file__).parents[2]


def other_user() -> int | None:
    """Who it is; None where the tests are not root's, and where the project lies in a directory closed to others."""
    if os.geteuid() != 0:
        return None
    open_to_all = (
        folder.stat().st_mode & stat.S_IXOTH for path in (_PROJECT, Path(sys.prefix)) for folder in _way(path)
    )
    return NOBODY if all(open_to_all) else None


def who() -> str:
    """As whom such a test runs, for the table of cases."""
    if other_user() is not None:
        return f"as user {NOBODY}"
    return f"as user {os.geteuid()}" + (", without its powers" if os.geteuid() == 0 else "")


def hand_over(folder: Path) -> None:
    """Give a folder with all that is in it to the other user, where there is one."""
    if (user := other_user()) is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)


def become_other() -> None:
    """Let permission bits bind this process for good: as the other user, else as root without its powers."""
    if (user := other_user()) is None:
        _drop_capabilities()
        return
    _keep_library()
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def _way(path: Path) -> list[Path]:
    path = path.resolve()
    return [path, *path.parents]


def _keep_library() -> None:
    """Python's own library, from which a command imports late, is found in a directory that is open already.

    So it may lie in one that is closed to others, as that of root.
    """
    library = os.path.dirname(os.__file__)
    opened = f"/proc/self/fd/{os.open(library, os.O_PATH)}"

    def moved(paths: list[str]) -> list[str]:
        return [path.replace(library, opened, 1) for path in paths]

    sys.path[:] = moved(sys.path)
    for module in list(sys.modules.values()):
        if isinstance(paths := vars(module).get("__path__"), list):
            module.__path__ = moved(paths)


def _drop_capabilities() -> None:
    """See capset(2); a process without any is not changed."""
    version_3, process = 0x20080522, 0
    header, none = (ctypes.c_uint32 * 2)(version_3, process), (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "capset")
