"""Every form of a product with weights, beside F.linear: which one is fastest differs by processor.

Part of `make bench`. It times all products of a token as decoding meets them, for one row and for 32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from benchmarks.laboratory import CONSOLE, asked, finish, flags, machine, resolved, show
from gpt_cli.config import Config
from gpt_cli.model import GPT, MultiHeadAttention
from gpt_cli.sampling.fast.matmul import FORMS, Form, Product, choose_form, possible
from gpt_cli.tools.bench.baselines import NUM_SAMPLES, vocab_size_of
from gpt_cli.tools.bench.bench import time_in_turns

DTYPES: dict[str, tuple[torch.dtype, tuple[Form, ...]]] = {
    "float32": (torch.float32, ("linear", "packed")),
    "bfloat16": (torch.bfloat16, ("linear", "one row", "packed")),
    "int8": (torch.bfloat16, ("linear", "int8", "packed int8")),
}
ROWS = (1, NUM_SAMPLES)


@dataclass(frozen=True)
class ProductTiming:
    """The time of a form for the products of a token; `ratio` is its speed against F.linear in the same dtype."""

    dtype: str
    num_rows: int
    form: str
    milliseconds: float
    ratio: float
    share_chosen: float  # of the numbers in all weights that `gpt sample` multiplies in this form


def forms_to_time(num_rows: int) -> Iterator[tuple[str, torch.dtype, list[Form]]]:
    """The forms that this processor has for a number of rows, by dtype."""
    for name, (dtype, forms) in DTYPES.items():
        had: list[Form] = [form for form in forms if possible(form, dtype, torch.device("cpu"))]
        yield name, dtype, [form for form in had if form != "one row" or num_rows == 1]


def num_timed() -> int:
    """How many timings `compare_products` gives."""
    return sum(len(forms) for num_rows in ROWS for _, _, forms in forms_to_time(num_rows))


@torch.inference_mode()
def compare_products(config: Config, rounds: int, count: Callable[[int], object]) -> list[ProductTiming]:
    """Time all products of a token in turns, for one row and for 32; `count` receives 1 for each run."""
    model = GPT(config.model, vocab_size_of(config), torch.Generator().manual_seed(0))
    weights: list[torch.Tensor] = []
    for block in model.blocks:
        attention, feed_forward = block.attention, block.feed_forward
        assert isinstance(attention, MultiHeadAttention)
        weights.append(attention.projection_weights(range(attention.num_heads))[0])
        weights += [layer.weight for layer in (attention.projection_layer, feed_forward.expand, feed_forward.contract)]
    weights.append((model.token_embedding if model.output_layer is None else model.output_layer).weight)
    found = []
    for num_rows in ROWS:
        for name, dtype, forms in forms_to_time(num_rows):
            runs = [_run_of(weights, form, dtype, num_rows) for form in forms]
            seconds = time_in_turns(runs, rounds, count)
            for form, of_form in zip(forms, seconds, strict=True):
                chosen = sum(
                    weight.numel() for weight in weights if _chosen(weight, dtype, name == "int8", num_rows) == form
                )
                found.append(
                    ProductTiming(
                        dtype=name,
                        num_rows=num_rows,
                        form="F.linear" if form == "linear" else form,
                        milliseconds=1000 * of_form,
                        ratio=seconds[0] / of_form,
                        share_chosen=chosen / sum(weight.numel() for weight in weights),
                    )
                )
    return found


def _chosen(weight: torch.Tensor, dtype: torch.dtype, int8: bool, num_rows: int) -> Form:
    return choose_form(weight.numel(), dtype, weight.device, int8=int8, num_rows=num_rows)


def _run_of(weights: list[torch.Tensor], form: Form, dtype: torch.dtype, num_rows: int) -> Callable[[], None]:
    """Runs each product once; weights of whole numbers are rounded from float32."""
    products: list[tuple[Product, torch.Tensor]] = []
    for weight in weights:
        own = weight.float() if "int8" in form else weight.to(dtype)
        products.append((FORMS[form](own, None), torch.randn(num_rows, weight.shape[1]).to(dtype)))

    def run() -> None:
        for product, x in products:
            product(x)

    return run


def main() -> None:
    arguments = flags(__doc__, config="small").parse_args()
    config, device = resolved(asked(arguments))
    with CONSOLE.counting("products", num_timed() * (arguments.rounds + 1), "runs") as count:
        found = compare_products(config, arguments.rounds, count)
    print(machine(device, arguments.rounds))
    show(
        f"all products of a token of {arguments.config}, as decoding meets them",
        ("form", "dtype", "rows", "ms", "ratio", "used for"),
        [_row(each) for each in found],
    )
    finish(arguments, products=found)


def _row(found: ProductTiming) -> tuple[str, ...]:
    figures = str(found.num_rows), f"{found.milliseconds:.2f}", f"{found.ratio:.2f}"
    return found.form, found.dtype, *figures, f"{found.share_chosen:.0%}" if found.share_chosen else "-"


if __name__ == "__main__":
    main()
