"""The real llama.cpp: its server in a process of its own, which an assertion of C++ may end."""

import http.client
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MISSING = [name for name in ("gguf", "xllamacpp") if importlib.util.find_spec(name) is None]
needs_llama_cpp = pytest.mark.skipif(bool(MISSING) and not os.environ.get("CI"), reason=f"needs {', '.join(MISSING)}")

_SERVE = """
import json, sys, xllamacpp
servers = []
for path in sys.argv[1:]:
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.n_gpu_layers = path, 512, 1, 0
    params.cpuparams.n_threads, params.warmup = 1, False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    servers.append(xllamacpp.Server(params))
print(json.dumps([server.listening_address for server in servers]), flush=True)
sys.stdin.read()
"""


class Served:
    """A model that llama.cpp serves."""

    def __init__(self, address: str):
        self.connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)

    def asked(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to a question, which is JSON."""
        try:
            answer = self._answer(path, json.dumps(body))
        except (OSError, http.client.HTTPException):  # the server ends a connection that was idle for five seconds
            self.connection.close()
            answer = self._answer(path, json.dumps(body))
        content = json.loads(answer.read())
        assert answer.status == 200, content
        return content

    def _answer(self, path: str, body: str) -> http.client.HTTPResponse:
        self.connection.request("POST", path, body, {"Content-Type": "application/json"})
        return self.connection.getresponse()

    def ids(self, text: str, **settings: Any) -> list[int]:
        """The ids of a text as it stands, with what llama.cpp puts before it."""
        body = {"content": text, "add_special": True, "parse_special": False, **settings}
        return self.asked("/tokenize", body)["tokens"]


@contextmanager
def serving(*paths: Path) -> Iterator[list[Served]]:
    """These files, served until the end of the block."""
    command = [sys.executable, "-c", _SERVE, *map(str, paths)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, text=True, env=environment) as process:
        assert process.stdout
        try:
            found = process.stdout.readline()
            assert found, "llama.cpp refused a file"
            models = list(map(Served, json.loads(found)))
            yield models
            for model in models:
                model.connection.close()
        finally:
            process.kill()


def write_random(path: Path, keys: Mapping[str, Any], num_tokens: int) -> Path:
    """A GPT-2 of one block with random weights, and these keys of its tokenizer."""
    from gguf import GGUFWriter

    writer, width, draws = GGUFWriter(path, "gpt2"), 8, np.random.default_rng(0)
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(1)
    writer.add_layer_norm_eps(1e-5)
    types = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
    for key, value in keys.items():
        types[type(value)](key, value)  # as llama.cpp wants it

    def tensor(name: str, shape: Sequence[int]) -> None:
        writer.add_tensor(name, draws.standard_normal(shape).astype(np.float32))

    tensor("token_embd.weight", (num_tokens, width))
    tensor("position_embd.weight", (512, width))
    for name, rows, columns in (("attn_qkv", 3, 1), ("attn_output", 1, 1), ("ffn_up", 2, 1), ("ffn_down", 1, 2)):
        tensor(f"blk.0.{name}.weight", (rows * width, columns * width))
        tensor(f"blk.0.{name}.bias", (rows * width,))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        tensor(f"{name}.weight", (width,))
        tensor(f"{name}.bias", (width,))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
