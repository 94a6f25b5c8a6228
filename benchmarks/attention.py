"""What a dump of all heads costs, format by format, and how soon its page can be used; part of `make bench`.

The model is a fresh one of the config's sizes whose queries are made larger, so that its heads are as sharp as trained
ones and its files no smaller than theirs. Where they are installed, the benchmark also times transformers with
`output_attentions` on a GPT-2 with the same weights, saved the same way, and the page in Chromium with playwright.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.laboratory import find_chromium
from gpt_cli.attention_maps.file_formats import FORMATS
from gpt_cli.attention_maps.head_scores import score_heads
from gpt_cli.attention_maps.patterns import AttentionDump, Origin, dump_attention
from gpt_cli.common.files import write_durably
from gpt_cli.config.load import read_config
from gpt_cli.model import GPT, MultiHeadAttention
from gpt_cli.text.tokenizers import ByteTokenizer
from gpt_cli.tools.interpret.attention_files import encode_dump

TEXT = (
    "The model may look back at every token before the one it is at, and this tells where each of its heads does look."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="small")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sizes = read_config(arguments.config).model
    tokenizer = ByteTokenizer()
    model = GPT(sizes, tokenizer.vocab_size, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("Wq.weight", "W_UQ.weight")):
                parameter.mul_(20)
    ids = (tokenizer.encode(TEXT) * sizes.context_length)[: sizes.context_length]

    def ours() -> AttentionDump:
        layers, heads = range(sizes.num_blocks), range(sizes.num_heads)
        return dump_attention(model, tokenizer, ids, layers=layers, heads=heads, origin=Origin("a model", 0, TEXT))

    scores = score_heads(model, np.array(ids), [(0, len(ids))], end_of_text=tokenizer.end_of_text)
    dump = replace(ours(), scores=scores)  # which a page shows
    forms: dict[str, Callable[[], object]] = {"gpt": ours}
    theirs = _transformers(model, ids)
    if theirs:
        forms["transformers"] = theirs
        np.testing.assert_allclose(theirs(), dump.weights, atol=1e-4)
    found: dict[str, Any] = {"shape": dump.weights.shape, "seconds": {}, "bytes": {}}
    with tempfile.TemporaryDirectory() as folder:
        for ending in FORMATS:
            path = Path(folder) / f"attention{ending}"
            forms[ending] = lambda path=path: write_durably(path, encode_dump(dump, path.suffix))
        if theirs:
            forms["transformers .npz"] = lambda: np.savez_compressed(Path(folder) / "theirs.npz", weights=theirs())
        seconds: dict[str, list[float]] = {name: [] for name in forms}
        for _ in range(arguments.rounds):
            for name, run in forms.items():
                started = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - started)
        found["seconds"] = {name: statistics.median(times) for name, times in seconds.items()}
        for path in sorted(Path(folder).iterdir()):
            found["bytes"][path.name] = path.stat().st_size
        page = _until_ready(Path(folder) / "attention.html", arguments.rounds)
        if page is not None:
            found["seconds"]["page in Chromium"] = page
    for name, time_taken in found["seconds"].items():
        size = found["bytes"].get(f"attention{name}" if name.startswith(".") else "theirs.npz" * name.endswith(".npz"))
        print(f"{name:18} {time_taken:6.3f} s" + (f" {size / 1e6:7.2f} MB" if size else ""))
    print(json.dumps(found))


def _transformers(model: GPT, ids: list[int]) -> Callable[[], np.ndarray] | None:
    """The same attention [L, H, T, T] by GPT-2; None where transformers is missing or the config is of no GPT-2."""
    sizes = model.config
    form = (sizes.attention, sizes.positions, sizes.norm, sizes.norm_position, sizes.activation, sizes.bias)
    of_gpt2 = form == ("multi_head", "learned", "layernorm", "pre", "gelu", True)
    of_gpt2 &= sizes.hidden_size == 4 * sizes.d_model and sizes.scale == "head"
    if not of_gpt2 or importlib.util.find_spec("transformers") is None:
        return None
    library: Any = importlib.import_module("transformers")
    shape = library.GPT2Config(
        vocab_size=model.vocab_size,
        n_positions=sizes.context_length,
        n_embd=sizes.d_model,
        n_layer=sizes.num_blocks,
        n_head=sizes.num_heads,
        activation_function="gelu",
        attn_implementation="eager",
        bos_token_id=0,
        eos_token_id=0,
    )
    theirs = library.GPT2LMHeadModel(shape).eval()
    own = theirs.transformer
    own.wte.weight.data = model.token_embedding.weight.data
    own.wpe.weight.data = model.position_embedding.weight.data  # type: ignore[union-attr]
    for block, copy in zip(model.blocks, own.h, strict=True):
        copy.ln_1.load_state_dict(block.norm_1.state_dict())
        copy.ln_2.load_state_dict(block.norm_2.state_dict())
        attention, feed_forward = block.attention, block.feed_forward
        assert isinstance(attention, MultiHeadAttention)
        for layer, weight, bias in (
            (copy.attn.c_attn, attention.projection_weights(range(sizes.num_heads))[0], torch.zeros(3 * sizes.d_model)),
            (copy.attn.c_proj, attention.projection_layer.weight, attention.projection_layer.bias),
            (copy.mlp.c_fc, feed_forward.expand.weight, feed_forward.expand.bias),
            (copy.mlp.c_proj, feed_forward.contract.weight, feed_forward.contract.bias),
        ):
            # theirs are [in, out]
            layer.weight.data, layer.bias.data = weight.detach().T.contiguous(), bias.detach()

    @torch.inference_mode()
    def run() -> np.ndarray:
        return torch.cat(theirs(torch.tensor([ids]), output_attentions=True).attentions).numpy()

    return run


def _until_ready(path: Path, rounds: int) -> float | None:
    """Seconds from navigation until the page is drawn and responds; the median of `rounds` visits."""
    chromium = find_chromium()
    if chromium is None or importlib.util.find_spec("playwright") is None:
        return None
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for _ in range(rounds):
            page = browser.new_page(viewport={"width": 1300, "height": 1000})
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]")
            found.append(page.evaluate("Number(document.documentElement.dataset.ready)") / 1000)
            page.close()
        browser.close()
    return statistics.median(found)


if __name__ == "__main__":
    main()
