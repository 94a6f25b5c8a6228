"""Recognise errors that mean that memory or file descriptors ran out, and choose exit codes. Needs no torch."""

from __future__ import annotations

import errno
import os
import re

from gpt_cli.errors import EXIT_CODE_BUG, EXIT_CODE_STDOUT_CLOSED, EnvironmentFailure, GptError

# how accelerators, torch, C++, the dynamic linker, the threads of Python and oneDNN say that memory ran out
_OF_DEVICE = "out of memory"
_LACKING = (
    _OF_DEVICE,
    "can't allocate memory",
    "bad_alloc",
    "failed to map segment",
    "can't start new thread",
    "could not create a primitive",
)
_REASONS = {
    errno.ENOSPC: "there is no space left on the filesystem",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than this process may write",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EROFS: "the filesystem is read-only",
    errno.ENOENT: "there is no such directory",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EISDIR: "this is a directory",
    errno.ENAMETOOLONG: "the name is too long",
}


def is_lack_of_memory(error: BaseException) -> bool:
    """Return whether an error means that main memory or GPU memory ran out."""
    if isinstance(error, MemoryError) or is_lack_of_device_memory(error):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError | ImportError) and any(words in str(error) for words in _LACKING)


def is_lack_of_device_memory(error: BaseException) -> bool:
    """Return whether an error means that the memory of an accelerator ran out."""
    # torch, which is not imported here, has an error class for some accelerators, and the words for all
    return type(error).__name__ == "OutOfMemoryError" or (isinstance(error, RuntimeError) and _OF_DEVICE in str(error))


def missing_operation(error: BaseException) -> str | None:
    """Return the operation that torch lacks on a device, such as aten::sort; None if the error has another cause."""
    match = re.search(r"'(aten::[\w.]+)'", str(error)) if isinstance(error, NotImplementedError) else None
    return match and match[1]


def is_lack_of_files(error: BaseException) -> bool:
    """Return whether an error, of the system or of torch, means that too many files are open."""
    if isinstance(error, OSError):
        return error.errno == errno.EMFILE
    return isinstance(error, RuntimeError) and os.strerror(errno.EMFILE) in str(error)


def exit_code_of(error: BaseException) -> int:
    """Return the exit code with which `gpt` ends after an exception."""
    if isinstance(error, GptError):
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        return EXIT_CODE_STDOUT_CLOSED
    lacks = is_lack_of_memory(error) or is_lack_of_files(error) or missing_operation(error) is not None
    return EnvironmentFailure.exit_code if lacks or isinstance(error, OSError) else EXIT_CODE_BUG


def reason(error: OSError) -> str:
    """Return a sentence about an error of the operating system, such as: permission is denied."""
    return _REASONS.get(error.errno or 0, (error.strerror or str(error)).lower())
