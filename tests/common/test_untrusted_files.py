import os
from pathlib import Path

import pytest

from gpt_cli.common.untrusted_files import read_bytes, reading
from gpt_cli.errors import DataError


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(DataError, match="changed while gpt read it"), reading(path, DataError):
        os.utime(path, ns=(0, 0))  # as writing does, where the file system's clock is not too slow to show it


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux has files that tell no size")
def test_a_file_without_a_size_is_not_read_on(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="changed while gpt read it"):
        read_bytes(Path("/proc/self/status"), DataError)
