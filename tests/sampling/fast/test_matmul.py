import pytest
import torch

from gpt_cli.sampling.fast import matmul as module
from gpt_cli.sampling.fast.int8 import to_int8
from gpt_cli.sampling.fast.matmul import FORMS, PACKED_FROM, Form, Products, choose_form, possible

CPU = torch.device("cpu")
SMALL, LARGE = 64 * 64, 512 * 512


@pytest.fixture
def packs_bfloat16() -> bool:
    """Whether this processor packs bfloat16, which the other tests pretend."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


@pytest.fixture(autouse=True)
def _of_amd_with_bfloat16(monkeypatch: pytest.MonkeyPatch, packs_bfloat16: bool) -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("oneDNN comes with torch for x86 processors")
    monkeypatch.setattr(module, "processor_vendor", lambda: "AuthenticAMD")
    monkeypatch.setattr(module, "cpu_multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)


@pytest.mark.parametrize(
    ("size", "dtype", "options", "form"),
    [
        (LARGE, torch.float32, {}, "packed"),
        (128 * 512, torch.float32, {}, "linear"),  # of tiny, whose weights stay in a cache
        (SMALL, torch.float32, {}, "linear"),  # the call costs more than the product
        (LARGE, torch.bfloat16, {}, "one row"),
        (LARGE, torch.bfloat16, {"num_rows": 2}, "packed"),
        (LARGE, torch.float64, {}, "linear"),
        (LARGE, torch.bfloat16, {"int8": True}, "int8"),
        (LARGE, torch.bfloat16, {"int8": True, "num_rows": 4}, "int8"),
        (LARGE, torch.bfloat16, {"int8": True, "num_rows": 32}, "packed int8"),
        (SMALL, torch.bfloat16, {"int8": True, "num_rows": 32}, "int8"),
    ],
)
def test_the_form_follows_from_size_dtype_and_rows(
    size: int, dtype: torch.dtype, options: dict[str, int], form: Form
) -> None:
    assert choose_form(size, dtype, CPU, **options) == form  # type: ignore[arg-type]
    assert choose_form(size, dtype, torch.device("meta")) == "linear"


def test_in_float32_the_form_does_not_depend_on_the_rows() -> None:
    """So that a sample is the same in any batch."""
    for size in (SMALL, LARGE):
        assert len({choose_form(size, torch.float32, CPU, num_rows=num_rows) for num_rows in (1, 2, 32)}) == 1


def test_other_processors_keep_what_was_faster_there_or_take_plain_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "processor_vendor", lambda: "GenuineIntel")
    assert choose_form(LARGE, torch.float32, CPU) == "linear"
    assert choose_form(LARGE, torch.bfloat16, CPU) == "packed"
    monkeypatch.setattr(module, "processor_vendor", lambda: "")
    assert {choose_form(LARGE, dtype, CPU) for dtype in PACKED_FROM} == {"linear"}


def test_without_bfloat16_products_nothing_is_packed_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cpu_multiplies_bfloat16", lambda: False)
    assert choose_form(LARGE, torch.bfloat16, CPU, num_rows=2) == "linear"
    assert choose_form(LARGE, torch.bfloat16, CPU, int8=True, num_rows=32) == "int8"
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert [possible(form, torch.bfloat16, CPU) for form in FORMS] == [True, True, False, True, False]


@pytest.mark.parametrize("num_rows", [1, 5, 32])
@pytest.mark.parametrize("biased", [True, False])
@torch.inference_mode()
def test_all_forms_give_the_same_products(num_rows: int, biased: bool, packs_bfloat16: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(96, 64, generator=generator), torch.randn(num_rows, 64, generator=generator)
    bias = torch.randn(96, generator=generator) if biased else None
    numbers, scales = to_int8(weight)
    rounded = numbers * scales.float()[:, None]
    for form, make in FORMS.items():
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
            whole = "int8" in form
            if not possible(form, dtype, CPU) or ("packed" in form and dtype != torch.float32 and not packs_bfloat16):
                continue
            found = make(weight if whole else weight.to(dtype), None if bias is None else bias.to(dtype))(x.to(dtype))
            expected = torch.nn.functional.linear(x, rounded if whole else weight, bias)
            assert found.dtype == dtype
            most = tolerance * float(expected.abs().max())
            torch.testing.assert_close(found.float(), expected, rtol=tolerance, atol=most)


@pytest.mark.parametrize("dtype", PACKED_FROM)
@torch.inference_mode()
def test_products_own_their_weights(dtype: torch.dtype, packs_bfloat16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cpu_multiplies_bfloat16", lambda: packs_bfloat16)
    weight, bias, x = torch.ones(512, 512), torch.ones(512), torch.ones(1, 512, dtype=dtype)
    for kind in (Products(dtype), Products(dtype, int8=True), Products(dtype, int8=True, num_rows=32)):
        product = kind.of(weight, bias)
        before = product(x.to(kind.dtype))
        weight += 1
        bias += 1
        assert torch.equal(product(x.to(kind.dtype)), before)
        weight -= 1
        bias -= 1


def test_a_product_of_one_row_leaves_the_library_of_other_products_switched_on() -> None:
    product = FORMS["one row"](torch.ones(8, 8, dtype=torch.bfloat16), None)
    assert product(torch.ones(1, 8, dtype=torch.bfloat16)).tolist() == [[8.0] * 8]
    assert torch._C._get_mkldnn_enabled()
    with pytest.raises(RuntimeError):
        product(torch.ones(1, 9, dtype=torch.bfloat16))
    assert torch._C._get_mkldnn_enabled()


@torch.inference_mode()
def test_many_rows_go_through_the_fastest_product_with_a_weight_as_it_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(512, 512, generator=generator), torch.randn(17, 512, generator=generator)
    calls = list[int]()
    plain = module.unpacked_product
    monkeypatch.setattr(module, "unpacked_product", lambda x, weight: (calls.append(len(x)), plain(x, weight))[1])
    for vendor, expected in (("AuthenticAMD", [17]), ("GenuineIntel", [])):
        monkeypatch.setattr(module, "processor_vendor", lambda vendor=vendor: vendor)
        calls.clear()
        found = Products(torch.float32, compiled=True).of(weight, weight[0])(x)
        torch.testing.assert_close(found, torch.nn.functional.linear(x, weight, weight[0]), rtol=1e-4, atol=1e-4)
        assert calls == expected
