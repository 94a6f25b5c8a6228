"""Explain errors of libraries and of the system, such as a lack of memory, and choose exit codes. Needs no torch."""

import errno
import os
import re

from gpt_cli.errors import EXIT_CODE_STDOUT_CLOSED, EnvironmentFailure, GptError, shown

# how accelerators, torch, C++, the dynamic linker and oneDNN say that memory ran out
_OF_DEVICE = "out of memory"
_LACKING = (_OF_DEVICE, "can't allocate memory", "bad_alloc", "failed to map segment", "could not create a primitive")
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
    """Return whether an error means that memory ran out; ask `is_lack_of_device_memory` first."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError | ImportError):
        return any(words in str(error) for words in _LACKING)
    return isinstance(error, MemoryError)


def is_lack_of_device_memory(error: BaseException) -> bool:
    """Return whether an error means that the memory of an accelerator ran out."""
    # torch, which is not imported here, has an error class for some accelerators, and the words for all
    return type(error).__name__ == "OutOfMemoryError" or (isinstance(error, RuntimeError) and _OF_DEVICE in str(error))


def is_lack_of_files(error: BaseException) -> bool:
    """Return whether an error, of the system or of torch, means that too many files are open."""
    if isinstance(error, OSError):
        return error.errno == errno.EMFILE
    return isinstance(error, RuntimeError) and os.strerror(errno.EMFILE) in str(error)


def as_gpt_error(error: BaseException, command: str, less_memory: str | None = None) -> GptError:
    """Convert an error that ended `command`, such as gpt train; `less_memory` is a hint on what takes less memory."""
    if isinstance(error, GptError):
        return error
    if is_lack_of_device_memory(error):
        sentence = f"it has too little memory for {command}"
        return EnvironmentFailure("device", sentence, hint="; or ".join(filter(None, (less_memory, "‹device=cpu›"))))
    if is_lack_of_memory(error):
        return EnvironmentFailure("memory", f"{command} ran out of memory", hint=less_memory)
    if re.search("no kernel image|invalid device function", str(error)):  # of CUDA, of HIP
        sentence, hint = "this build of PyTorch has no code for this GPU", "‹device=cpu›, or install another build"
        return EnvironmentFailure("device", sentence, hint=hint)
    if re.search("can't start new thread|Resource temporarily unavailable", str(error)):  # of Python; of C++ and forks
        hint = "ulimit -u limits processes and threads, ulimit -v their memory"
        return EnvironmentFailure("threads", f"{command} may start no more threads or processes", hint=hint)
    operation = re.search(r"'(aten::[\w.]+)'", str(error))
    if isinstance(error, NotImplementedError) and operation:
        hint = "‹device=cpu›" + (", or PYTORCH_ENABLE_MPS_FALLBACK=1 in front of gpt" if "MPS" in str(error) else "")
        sentence = f"{command} needs {operation[1]}, which torch lacks on this device"
        return EnvironmentFailure("device", sentence, hint=hint)
    if is_lack_of_files(error):
        sentence = f"{command} needs more open files than the system allows a process"
        return EnvironmentFailure("open files", sentence, hint="ulimit -n 1024")
    if isinstance(error, OSError) and "temporary directory" in str(error):  # of tempfile, which has tried several
        hint = "set TMPDIR to a folder with more space"
        return EnvironmentFailure("TMPDIR", "no folder for temporary files can be written", hint=hint)
    if isinstance(error, OSError):
        return EnvironmentFailure(shown(error.filename) if error.filename else "output", reason(error))
    if isinstance(error, UnicodeEncodeError) and error.encoding != "utf-8":  # of the system's calls, which take names
        return EnvironmentFailure("LC_ALL", "this locale cannot encode the name of a file", hint="LC_ALL=C.UTF-8")
    sentence = f"this is a bug of gpt, {type(error).__name__}: {error}"
    return GptError("internal", sentence, hint="add ‹debug› for the traceback")


def exit_code_of(error: BaseException) -> int:
    """Return the exit code with which `gpt` ends after an exception."""
    return EXIT_CODE_STDOUT_CLOSED if isinstance(error, BrokenPipeError) else as_gpt_error(error, "gpt").exit_code


def reason(error: OSError) -> str:
    """Return a sentence about an error of the operating system, such as: permission is denied."""
    return _REASONS.get(error.errno or 0, (error.strerror or str(error)).lower())
