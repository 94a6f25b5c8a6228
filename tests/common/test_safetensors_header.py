import io

import pytest

from gpt_cli.common.safetensors_header import MALFORMED, header_bytes, parse_header, read_header_bytes, require_in_place
from gpt_cli.errors import CheckpointError


def test_a_header_is_read_as_it_was_written() -> None:
    written = header_bytes({"ids": ("U16", [3]), "more": ("U16", [2, 2])}, {"kind": "ids"}, num_bytes=256)
    assert len(written) == 256
    assert read_header_bytes(io.BytesIO(written + b"rest"), 1000) == (248, written)
    metadata, tensors = parse_header(written)
    assert metadata == {"kind": "ids"}
    assert tensors == {"ids": ("U16", (3,), 0, 6), "more": ("U16", (2, 2), 6, 14)}
    require_in_place(tensors, "a file")
    with pytest.raises(CheckpointError, match=r'^a file: .* the place of "more" does not match its shape$'):
        require_in_place({"ids": tensors["ids"], "more": tensors["more"]._replace(start=4, stop=12)}, "a file")
    assert len(header_bytes({"a": ("F32", [1])}, {})) % 8 == 0


def test_a_header_that_is_too_long_stays_unread() -> None:
    file = io.BytesIO(header_bytes({"a": ("F32", [1])}, {}))
    length, content = read_header_bytes(file, 10)
    assert (length > 10, len(content), file.tell()) == (True, 8, 8)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"a": {"dtype": "F32", "shape": [1]}}',
        b'{"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}, "a": 1}',
    ],
)
def test_what_no_safetensors_file_has_is_refused(text: bytes) -> None:
    with pytest.raises(MALFORMED):
        parse_header(len(text).to_bytes(8, "little") + text)
