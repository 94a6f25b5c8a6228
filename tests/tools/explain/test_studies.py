import os
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

import gpt_cli
from gpt_cli.tools.explain import plots, studies
from gpt_cli.tools.explain.explanation import Explanation


def numbers(explanation: Explanation) -> dict[str, np.ndarray]:
    return {step.name: step.numbers for step in explanation.steps}


def test_facts_of_rows_that_can_be_worked_out_by_hand() -> None:
    """Even weights of a half: entropy ln 2, derivative of four entries of 1/4. A certain one: nothing."""
    even, certain = studies._facts(torch.tensor([[0.0, 0.0], [0.0, 1000.0]], dtype=torch.float64)).tolist()
    assert even == pytest.approx([np.log(2), 0.5, 0.5])
    assert certain == pytest.approx([0, 1, 0])


def test_the_derivative_is_that_of_autograd() -> None:
    scores = torch.randn(1, 7, generator=torch.Generator().manual_seed(0)).double()
    jacobian = torch.autograd.functional.jacobian(lambda z: z.softmax(-1), scores[0])
    assert isinstance(jacobian, torch.Tensor)
    assert studies._facts(scores)[0, 2].item() == pytest.approx(jacobian.norm().item(), rel=1e-12)


def test_only_the_divided_scores_keep_their_entropy_as_sizes_grow() -> None:
    found = numbers(studies.scaling(None))["random_scores"]
    entropy, divided, largest, largest_divided, gradient, gradient_divided = found.T
    assert (np.diff(entropy) < 0).all()
    assert entropy[-1] < 0.05 * entropy[0]
    assert np.ptp(divided) < 0.15
    assert largest[-1] > 0.9
    assert np.ptp(largest_divided) < 0.05
    assert gradient[-1] < gradient_divided[-1] / 2
    assert entropy[0] == divided[0], "K = 1 divides by 1"


def test_normal_numbers_of_deviation_100_leave_one_weight_of_all() -> None:
    before, after = numbers(studies.scaling(None))["normal_numbers"]
    assert before == pytest.approx([0, 1, 0], abs=0.05)
    # of n even weights the entropy is ln n; a normal spread of 1 costs half a nat
    assert after[0] == pytest.approx(np.log(20_000) - 0.5, abs=0.05)
    assert after[1] < 0.01


def test_scaling_looks_into_the_model_at_hand(smoke_run: Path) -> None:
    explanation = studies.scaling(gpt_cli.load(smoke_run))
    found = numbers(explanation)["model_scores"]
    assert found.shape == (2, 6)
    assert (found[:, 1] >= found[:, 0]).all(), "divided scores are never sharper"


def test_masking_before_and_renormalising_after_are_the_same_and_neither_leaks() -> None:
    explanation = studies.mask()
    found = numbers(explanation)
    np.testing.assert_allclose(found["masked_before_softmax"], found["renormalised"], atol=1e-15)
    np.testing.assert_allclose(found["row_sums"][0], 1)
    assert (found["row_sums"][1, :-1] < 0.9).all()
    assert (found["leak_change"][0] == 0).all()
    assert (found["leak_change"][1] > 0.001).all()


def test_dropout_keeps_the_mean_and_scales_what_stays() -> None:
    found = numbers(studies.dropout())
    for p in (0.1, 0.5):
        row, *draws, mean = found[f"dropout_{p}"][:, :-1]
        for draw in draws:
            np.testing.assert_allclose(draw[draw > 0], row[draw > 0] / (1 - p))
        np.testing.assert_allclose(mean, row, rtol=0.05)
        np.testing.assert_allclose(found[f"dropout_{p}"][:, -1], found[f"dropout_{p}"][:, :-1].sum(1))


def test_padding_gets_nothing_and_rows_sum_to_one() -> None:
    found = numbers(studies.padding())
    assert len(found) == 4
    for name, weights in found.items():
        num_words = 3 if name.startswith("sentence_0") else 4
        assert (weights[:, num_words:] == 0).all()
        assert (weights[:, :num_words] > 0).all()
        np.testing.assert_allclose(weights.sum(1), 1)
    # the first and the third word of the second sentence are the same token
    np.testing.assert_allclose(found["sentence_1_head_0"][0], found["sentence_1_head_0"][2])


MAKERS = {
    "scaling": lambda: studies.scaling(None),
    "mask": studies.mask,
    "dropout": studies.dropout,
    "padding": studies.padding,
}


@pytest.mark.parametrize("study", MAKERS)
def test_a_study_is_drawn_with_its_numbers(study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a figure, which does not become a file here: that takes half a second."""
    drawn, explanation = list[Figure](), MAKERS[study]()
    monkeypatch.setattr(plots, "as_file", lambda figure, _: drawn.append(figure) or b"")
    plots.plot(study, explanation, "en", kind="svg", notice=print)
    texts = {text.get_text() for text in drawn[0].findobj(Text)}
    if study == "scaling":
        assert {"entropy", "undivided", "divided"} <= texts
        assert {f"{number:.3g}" for number in explanation.steps[-1].numbers.flat} <= texts
    else:
        numbers = [number for step in explanation.steps for number in step.numbers.flat]
        assert [number for number in numbers if not {f"{number:.2f}", f"{number:.4f}"} & texts] == []


def test_the_path_of_a_run_is_no_formula_and_has_a_font(copied: Path) -> None:
    os.rename(copied, "runs/a$\\frac$b模")
    explanation = studies.scaling(gpt_cli.load("runs/a$\\frac$b模"))
    assert "a$\\frac$b模" in explanation.steps[1].title
    said: list[str] = []
    plots.plot("scaling", explanation, "en", kind="svg", notice=said.append)  # warnings are errors
    assert all("模" in line for line in said)  # where no font has it
