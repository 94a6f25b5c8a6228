"""What `gpt bench` does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from gpt_cli.amounts import size
from gpt_cli.callbacks import Counting
from gpt_cli.cli.terminal import Console, table
from gpt_cli.cli.work.bench_room import require_batch, require_processes
from gpt_cli.config import Config
from gpt_cli.errors import counted
from gpt_cli.machine.devices import choose_device, choose_dtype, processor, use_threads
from gpt_cli.machine.memory import reuse_memory
from gpt_cli.machine.sharing import cores
from gpt_cli.measuring.attention import NUM_LAYERS, LayerCosts, ModelCosts, compare_layers, compare_models, with_forms
from gpt_cli.measuring.bench import (
    Timing,
    costs,
    sampling_roof,
    sampling_variants,
    take_turns,
    training_roof,
    training_variants,
)
from gpt_cli.measuring.beside import NUM_WAYS, Beside, compare_beside, share_left
from gpt_cli.measuring.needs import attention_bytes, beside_bytes, plain_bytes
from gpt_cli.measuring.products import ProductTiming, compare_products, num_timed
from gpt_cli.measuring.roof import measure_roof
from gpt_cli.measuring.together import WORKS, Together, compare_together, threads_each
from gpt_cli.text.reading import read_data

Print = Callable[[str], object]


def bench_and_show(
    asked: Config,
    name: str,
    console: Console,
    *,
    attention: bool,
    busy: int | None,
    processes: int | None,
    rounds: int,
    tokens: int,
    device: str | None,
    json: bool,
) -> None:
    """Print the tables of a config of this name as they are ready, or with `json` all timings at the end."""
    where, about = _machine(asked, name, device if processes is None else "cpu", rounds)
    if processes is not None:
        require_processes(asked, processes)
        compare = partial(_compare_together, processes)
    elif busy is not None:
        compare = partial(_compare_beside, busy)
    else:
        compare = _compare_attention if attention else _compare_with_roof
    found = compare(asked, where, about, tokens, console, (lambda _: None) if json else console.result)
    if json:
        console.json(found)


def _machine(asked: Config, name: str, device: str | None, rounds: int) -> tuple[torch.device, dict[str, Any]]:
    """The device to measure, and what to say about the measurement."""
    use_threads(asked.train.threads)
    reuse_memory()
    where = choose_device(device or asked.train.device)
    about = {
        "config": name,
        "device": str(where),
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rounds": rounds,
    }
    return where, about


def _heading(about: dict[str, Any]) -> str:
    return (
        f"{about['processor']}, {about['device']}, {counted(about['threads'], 'thread')}, torch {about['torch']}, "
        f"{counted(about['rounds'], 'round')}"
    )


def _announcing(console: Console) -> Counting:
    """A bar that begins at once; its beginning is a notice too, for those who see no bar."""

    @contextlib.contextmanager
    def counting(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
        console.notice(f"measuring {what}" + ("" if total is None else f": {total:,} {unit}"))
        with console.counting(what, total, unit) as count:
            count(0)
            yield count

    return counting


def _compare_with_roof(
    asked: Config, where: torch.device, about: dict[str, Any], tokens: int, console: Console, print_table: Print
) -> dict[str, Any]:
    """Training and sampling in several variants, beside what the machine can do; prints each table when it is ready."""
    require_batch(asked, where, lambda config: plain_bytes(config, tokens))
    rounds, counting = about["rounds"], _announcing(console)
    with counting("the roof", 3 * (rounds + 1), "rounds") as count:
        roof = measure_roof(where, rounds, count)
    rates = ", ".join(f"{dtype} {flops / 1e9:,.0f} GFLOP/s" for dtype, flops in roof.flops.items())
    print_table(f"{_heading(about)}\nroof: {rates}, reading {roof.bytes_read / 1e9:,.1f} GB/s\n")
    with console.working("building models to train"):
        variants = training_variants(asked, where)
    with counting("training", len(variants) * (rounds + 1), "runs") as count:
        training = take_turns(variants, training_roof(roof), rounds, count)
    what = f"training {about['config']}, {asked.tokens_per_step:,} tokens a step; the roof is products"
    print_table(f"{what}\n{_timings(training)}\n")
    products = []
    if where.type == "cpu" and asked.model.attention == "multi_head":
        with counting("products", num_timed() * (rounds + 1), "runs") as count:
            products = compare_products(asked, rounds, count)
        what = f"all products of a token of {about['config']}, as decoding meets them"
        print_table(f"{what}\n{_products(products)}\n")
    del variants  # their memory is for the next ones
    with console.working("building models to sample from"):
        variants = sampling_variants(asked, where, tokens)
    with counting("sampling", len(variants) * (rounds + 1), "runs") as count:
        sampling = take_turns(variants, sampling_roof(roof), rounds, count)
    what = f"sampling {about['config']}, {tokens} tokens after 8; the roof is reading the weights"
    print_table(f"{what}\n{_timings(sampling)}")
    timings = {"training": training, "products": products, "sampling": sampling}
    return {
        **about,
        "roof": asdict(roof),
        **{name: [asdict(each) for each in found] for name, found in timings.items()},
    }


def _compare_beside(
    num_programs: int,
    asked: Config,
    where: torch.device,
    about: dict[str, Any],
    tokens: int,
    console: Console,
    print_table: Print,
) -> dict[str, Any]:
    """Training and sampling alone, and beside programs that keep cores busy; prints the table."""
    require_batch(asked, where, lambda config: beside_bytes(config, tokens))
    with console.working("building models"):
        variants = training_variants(asked, where)[-1:] + sampling_variants(asked, where, tokens)
    works = [variant for variant in variants if variant.name in ("gpt train", "gpt sample")]
    with _announcing(console)("beside busy programs", NUM_WAYS * len(works) * (about["rounds"] + 1), "runs") as count:
        found = compare_beside(works, num_programs, about["rounds"], count)
    left = share_left(cores(), about["threads"], num_programs)
    print_table(
        f"{_heading(about)}\n"
        f"{about['config']} beside {counted(num_programs, 'busy program')}: speed as a share of that alone, "
        f"where {left:.0%} of the cores is left\n{_beside(found, left)}"
    )
    return {**about, "programs": num_programs, "share_left": left, "work": [asdict(each) for each in found]}


def _compare_together(
    num_processes: int,
    asked: Config,
    where: torch.device,
    about: dict[str, Any],
    tokens: int,
    console: Console,
    print_table: Print,
) -> dict[str, Any]:
    """Steps and exchanges of processes that train together, beside one process with their cores; prints the table."""
    dtype = choose_dtype(asked.train.dtype, where, asked.model.d_model)
    asked = asked.changed(train={"device": str(where), "dtype": dtype, "compile": "off"})
    settings, about = asked.train, {**about, "threads": num_processes * threads_each(asked, num_processes)}
    what = f"{num_processes} processes"
    with _announcing(console)(what, len(WORKS) * (about["rounds"] + 1), "runs") as count:
        found = compare_together(asked, num_processes, about["rounds"], count)
    parameters = costs(asked, dtype).parameters
    print_table(
        f"{_heading(about)}\n"
        f"a step of {about['config']} in {dtype}, {settings.num_lanes} micro-batches of "
        f"{counted(settings.sequences_at_once, 'sequence')}; each process exchanges gradients and weights of "
        f"{size(4 * parameters)}\n{_together(found)}"
    )
    about |= {"dtype": dtype, "processes": num_processes, "micro_batch_size": settings.sequences_at_once}
    return {**about, "bytes_of_gradients": 4 * parameters, "work": [asdict(each) for each in found]}


def _compare_attention(
    asked: Config, where: torch.device, about: dict[str, Any], tokens: int, console: Console, print_table: Print
) -> dict[str, Any]:
    """The forms of attention, as layers and as whole models; prints each table when it is ready."""
    dtype = choose_dtype(asked.train.dtype, where, asked.model.d_model)
    asked = asked.changed(train={"device": str(where), "dtype": dtype, "compile": "off"})
    settings, rounds, counting = asked.train, about["rounds"], _announcing(console)
    configs = with_forms(asked)
    require_batch(asked, where, lambda config: attention_bytes(config, with_forms(config)))
    corpus = read_data(asked.data)
    if settings.max_time is not None:
        console.notice(f"train.max_time is not used: each form is trained for {counted(settings.max_steps, 'step')}")
    with counting("layers", NUM_LAYERS * (rounds + 1), "runs") as count:
        layers = compare_layers(asked, where, rounds, count)
    shape = f"{settings.batch_size} x {asked.model.context_length} tokens of {asked.model.d_model}"
    print_table(
        f"one layer of attention without positions, forward and backward, {shape}, float32\n{_layers(layers)}\n"
    )
    models = compare_models(configs, corpus, where, rounds, tokens, counting)
    print_table(
        f"whole models of {models[0].parameters:,} parameters, {about['config']}: "
        f"{counted(settings.max_steps, 'step')} of training in {dtype}, samples in float32\n{_models(models)}"
    )
    about = {**about, "dtype": dtype, "seed": settings.seed, "max_steps": settings.max_steps}
    return {**about, "layers": [asdict(found) for found in layers], "models": [asdict(found) for found in models]}


def _beside(found: list[Beside], left: float) -> str:
    rows = [("work", "dtype", "alone", "torch's threads spin", "gpt's sleep", "of what is left")]
    for each in found:
        alone = f"{each.tokens_per_second:,.1f} tokens/s"
        rows.append(
            (
                each.name,
                each.dtype,
                alone,
                f"{each.spinning:.2f}",
                f"{each.sleeping:.2f}",
                f"{each.sleeping / left:.0%}",
            )
        )
    return table(rows)


def _together(found: list[Together]) -> str:
    alone = found[0].seconds
    rows = [("work", "processes", "threads each", "seconds", "of all cores", "speed")]
    for each in found:
        is_step = each.work not in ("exchange", "all_reduce")
        shape = str(each.num_processes), str(each.threads)
        figures = (
            f"{each.seconds:.3f}",
            f"{each.processor_seconds:.3f}",
            f"{alone / each.seconds:.2f}" if is_step else "-",
        )
        rows.append((each.work, *shape, *figures))
    return table(rows)


def _timings(timings: list[Timing]) -> str:
    rows = [("implementation", "dtype", "seconds", "tokens/s", "ratio", "of roof")]
    for found in timings:
        figures = f"{found.seconds:.3f}", f"{found.tokens_per_second:,.1f}", f"{found.ratio:.2f}"
        rows.append((found.form, found.dtype, *figures, f"{found.share_of_roof:.0%}"))
    return table(rows)


def _products(products: list[ProductTiming]) -> str:
    rows = [("form", "dtype", "rows", "ms", "ratio", "used for")]
    for found in products:
        figures = str(found.num_rows), f"{found.milliseconds:.2f}", f"{found.ratio:.2f}"
        rows.append((found.form, found.dtype, *figures, f"{found.share_chosen:.0%}" if found.share_chosen else "-"))
    return table(rows)


def _layers(layers: list[LayerCosts]) -> str:
    rows = [("form", "parameters", "ms", "speed")]
    rows += [(f.form, f"{f.parameters:,}", f"{1000 * f.seconds:.2f}", f"{f.ratio:.2f}") for f in layers]
    return table(rows)


def _models(models: list[ModelCosts]) -> str:
    rows = [
        ("form", "parameters", "feed-forward", "training", "memory", "sampling", "cache a token", "validation loss")
    ]
    for found in models:
        sizes = found.form, f"{found.parameters:,}", str(found.feed_forward_size)
        training = f"{found.training_ratio:.2f}", size(found.training_bytes)
        sampling = f"{found.sampling_ratio:.2f}", size(found.cache_bytes_per_token)
        rows.append((*sizes, *training, *sampling, f"{found.validation_loss:.4f}"))
    return table(rows)
