"""`gpt bench`"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt_cli.cli import options
from gpt_cli.cli.terminal import Console, size, table
from gpt_cli.errors import counted

if TYPE_CHECKING:
    from gpt_cli.config import Config
    from gpt_cli.measuring.bench import Timing


def bench(
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A YAML file or a shipped config. Default: small, or with --attention multi-head.",
        ),
    ] = None,
    attention: Annotated[
        bool,
        typer.Option("--attention", help="Compare the forms of attention: trains a model of each, for max_steps."),
    ] = False,
    settings: options.Settings = None,
    rounds: Annotated[
        int, typer.Option(parser=options.whole_number(1, 1000), help="Timed rounds, after one to warm up.")
    ] = 5,
    tokens: Annotated[
        int, typer.Option(parser=options.whole_number(1, 100_000), help="New tokens of each sampled sequence.")
    ] = 100,
    device: options.Device = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Time training and sampling beside what this machine could do and beside plain forms, which take turns."""
    console = Console(quiet)
    from gpt_cli.config.reading import read_config

    config = config or ("multi-head" if attention else "small")
    asked = read_config(config, settings or (), {})

    import torch

    from gpt_cli.machine import choose_device, choose_dtype, processor, reuse_memory
    from gpt_cli.measuring import bench as benches
    from gpt_cli.measuring.roof import measure_roof

    where = choose_device(device or asked.train.device)
    about: dict[str, Any] = {
        "config": config, "device": str(where), "processor": processor(), "threads": torch.get_num_threads(),
        "torch": torch.__version__, "rounds": rounds,
    }  # fmt: skip
    reuse_memory()
    if attention:
        dtype = choose_dtype(asked.train.dtype, where, asked.model.d_model)
        chosen = asked.train.model_copy(update={"device": str(where), "dtype": dtype, "compile": "off"})
        _compare_attention(asked.model_copy(update={"train": chosen}), about, tokens, console, json=json)
        return

    def tell(text: str) -> None:
        # at once, so that whoever stops the rest keeps it
        if not json:
            console.result(text)

    with console.counting("roof", 3 * rounds, "rounds") as count:
        roof = measure_roof(where, rounds, count)
    rates = ", ".join(f"{dtype} {flops / 1e9:,.0f} GFLOP/s" for dtype, flops in roof.flops.items())
    tell(
        f"{about['processor']}, {where}, {counted(about['threads'], 'thread')}, torch {torch.__version__}, "
        f"{counted(rounds, 'round')}\nroof: {rates}, reading {roof.bytes_read / 1e9:,.1f} GB/s\n"
    )
    forms = benches.training_forms(asked, where)
    with console.counting("training", len(forms) * (rounds + 1), "runs") as count:
        training = benches.take_turns(forms, benches.training_roof(roof), rounds, count)
    batch = asked.train.batch_size * asked.model.context_length
    tell(f"training {config}, {batch:,} tokens a step; the roof is products\n{_as_table(training)}\n")
    forms = benches.sampling_forms(asked, where, tokens)
    with console.counting("sampling", len(forms) * (rounds + 1), "runs") as count:
        sampling = benches.take_turns(forms, benches.sampling_roof(roof), rounds, count)
    tell(f"sampling {config}, {tokens} tokens after 8; the roof is reading the weights\n{_as_table(sampling)}")
    if json:
        timings = {"training": [asdict(found) for found in training], "sampling": [asdict(found) for found in sampling]}
        console.json({**about, "roof": asdict(roof), **timings})


def _compare_attention(asked: Config, about: dict[str, Any], tokens: int, console: Console, *, json: bool) -> None:
    import torch

    from gpt_cli.measuring import attention as forms
    from gpt_cli.text.corpus import read_data

    where, rounds, configs = torch.device(asked.train.device), about["rounds"], forms.with_forms(asked)
    corpus = read_data(asked.data)
    if asked.train.max_time is not None:
        console.notice(f"train.max_time is not used: each form is trained for {counted(asked.train.max_steps, 'step')}")
    with console.counting("layers", forms.NUM_LAYERS * (rounds + 1), "runs") as count:
        layers = forms.compare_layers(asked, where, rounds, count)
    if not json:
        shape = f"{asked.train.batch_size} x {asked.model.context_length} tokens of {asked.model.d_model}"
        console.result(f"one layer of attention without positions, forward and backward, {shape}, float32")
        rows = ((f.form, f"{f.parameters:,}", f"{1000 * f.seconds:.2f}", f"{f.ratio:.2f}") for f in layers)
        console.result(table([("form", "parameters", "ms", "speed"), *rows]) + "\n")
    models = forms.compare_models(configs, corpus, where, rounds, tokens, console.counting)
    if json:
        about = {**about, "dtype": asked.train.dtype, "seed": asked.train.seed, "max_steps": asked.train.max_steps}
        console.json({**about, "layers": [asdict(found) for found in layers], "models": [asdict(m) for m in models]})
        return
    console.result(
        f"whole models of {models[0].parameters:,} parameters, {about['config']}: "
        f"{counted(asked.train.max_steps, 'step')} of training in {asked.train.dtype}, samples in float32"
    )
    head = ("form", "parameters", "feed-forward", "training", "memory", "sampling", "cache a token", "validation loss")
    found = (
        (m.form, f"{m.parameters:,}", str(m.feed_forward_size), f"{m.training_ratio:.2f}", size(m.training_bytes),
         f"{m.sampling_ratio:.2f}", size(m.cache_bytes_per_token), f"{m.validation_loss:.4f}")
        for m in models
    )  # fmt: skip
    console.result(table([head, *found]))


def _as_table(timings: list[Timing]) -> str:
    head = ("form", "dtype", "seconds", "tokens/s", "ratio", "of roof")
    rows = (
        (found.form, found.dtype, f"{found.seconds:.3f}", f"{found.tokens_per_second:,.1f}", f"{found.ratio:.2f}",
         f"{found.share_of_roof:.0%}")
        for found in timings
    )  # fmt: skip
    return table([head, *rows])
