import errno
import os

import pytest

from gpt_cli.common.machine.failures import as_gpt_error, exit_code_of
from gpt_cli.errors import DataError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DataError("a", "wrong"), 3),
        (BrokenPipeError(), 141),
        (RuntimeError("std::bad_alloc"), 5),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device\n..."), 5),
        (RuntimeError("HIP error: invalid device function\n..."), 5),
        (UnicodeEncodeError("ascii", "今", 0, 1, "of a name"), 5),
        (RuntimeError("oops"), 1),
    ],
)
def test_every_exception_has_an_exit_code(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code


def test_without_memory_of_a_device_the_hint_names_what_there_is() -> None:
    error = RuntimeError("MPS backend out of memory")
    assert as_gpt_error(error, "gpt import").hint == "‹device=cpu›"
    assert as_gpt_error(error, "gpt eval", "a shorter text").hint == "a shorter text; or ‹device=cpu›"


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))]
)
def test_without_a_further_thread_or_process_memory_is_not_blamed(error: Exception) -> None:
    error = as_gpt_error(error, "gpt train", "a smaller model")
    assert (error.where, error.exit_code, "ulimit -u" in (error.hint or "")) == ("threads", 5, True)
