"""Files of arrays are read as they were written, and nothing else is."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from support.helpers import damage

from gpt_cli.checkpoints.array_file import ArrayFile
from gpt_cli.errors import CheckpointError

FILE = ArrayFile("gpt-cli tuned lens 1", "a tuned lens")
ABOUT, ARRAYS = {"text": "值", "steps": 3}, {"b": np.arange(6.0).reshape(2, 3).T, "a": np.zeros(2, np.float16)}


def test_arrays_and_what_is_said_of_them_come_back(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(FILE.to_bytes(ABOUT, ARRAYS))
    about, arrays = FILE.read(path, 1000)
    assert about == ABOUT
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)


def test_a_file_of_version_0_2_is_read(tmp_path: Path) -> None:
    """Its digest is of JSON with spaces."""
    path, text = tmp_path / "x.safetensors", '{"steps": 3, "text": "值"}'
    found = hashlib.sha256(text.encode())
    found.update(b"a float32 (2,)" + bytes(8))
    content = json.dumps({"about": json.loads(text), "digest": found.hexdigest()})
    path.write_bytes(safetensors.numpy.save({"a": np.zeros(2, np.float32)}, {FILE.key: content}))
    assert FILE.read(path, 1000)[0] == ABOUT


def test_damage_a_file_of_another_kind_and_one_that_is_too_large_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(FILE.to_bytes(ABOUT, ARRAYS))
    with pytest.raises(CheckpointError, match="a tuned lens has at most 100 bytes"):
        FILE.read(path, 100)
    with pytest.raises(CheckpointError, match="this is not a letter of gpt, or it is damaged"):
        ArrayFile("letter", "a letter").read(path, 1000)
    damage(path)
    with pytest.raises(CheckpointError, match="this is not a tuned lens of gpt, or it is damaged"):
        FILE.read(path, 1000)
