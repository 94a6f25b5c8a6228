"""`gpt patch`: shares with their errors, files, mistakes, and what Python gets."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.circuit import two_head_circuit
from support.helpers import RunCommand, overflow

import gpt_cli
from gpt_cli.config import ModelConfig
from gpt_cli.errors import DataError
from gpt_cli.text.tokenizers import CharTokenizer
from gpt_cli.tools.interpret.figure import Figure
from gpt_cli.tools.interpret.finding import Finding
from gpt_cli.tools.interpret.patching.patch import shares
from gpt_cli.tools.interpret.patching.request import Edge, parse_edge
from gpt_cli.tools.interpret.patching.view import PatchFinding, best_place

WORDS = ("--clean", "The value of", "--corrupt", "The name of", "--answer", " the", "--against", " a")
ONE: dict[str, Any] = {"clean": "The value of", "corrupt": "The name of", "answer": " the", "against": " a"}
OTHER: dict[str, Any] = {**ONE, "clean": "A value of", "corrupt": "A name of"}
LONGER: dict[str, Any] = {**ONE, "clean": "The The value of", "corrupt": "The The name of"}


def write_pairs(path: Path, *pairs: dict[str, str]) -> str:
    path.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    return str(path)


def test_the_error_of_a_share_is_that_of_pairs_drawn_again() -> None:
    generator = np.random.default_rng(1)
    gaps = generator.normal(1.0, 0.7, 80)  # some are near 0, some below
    changes = np.stack([0.6 * gaps + generator.normal(0, 0.2, 80), generator.normal(0, 0.3, 80)], axis=1)
    found, errors = shares(changes, gaps)
    drawn = generator.integers(0, 80, (4000, 80))
    again = changes[drawn].sum(1) / gaps[drawn].sum(1)[:, None]
    np.testing.assert_allclose(errors, again.std(0), rtol=0.08)
    np.testing.assert_allclose(found, [0.6, 0.0], atol=3 * errors.max())
    # a pair on which the metric hardly differs changes little, where the mean of ratios would explode
    more = shares(np.vstack([changes, [[0.1, 0.1]]]), np.append(gaps, 1e-9))[0]
    np.testing.assert_allclose(more, found, atol=0.01)
    assert shares(-changes, -gaps)[1] == pytest.approx(errors)
    assert np.isnan(shares(changes[:1], gaps[:1])[1]).all()


def test_a_report_has_a_row_for_each_part_and_position(run: RunCommand, smoke_run: Path) -> None:
    found = json.loads(run("patch", "--run", str(smoke_run), *WORDS, "--estimate", "--json").out)
    assert {key: found[key] for key in ONE} == ONE
    assert (found["metric"], found["step"]) == ("logit_difference", 20)
    assert [(each["clean"], each["corrupt"]) for each in found["tokens"]][1] == (" value", " name")
    T, rows = len(found["tokens"]), found["rows"]
    assert len(rows) == 2 * (3 + 2) * (T + 1)
    by_place = {(row["part"], row["layer"], row["head"], row["position"]): row for row in rows}
    assert [by_place["residual", layer, None, None]["recovered"] for layer in (0, 1)] == pytest.approx([1, 1], abs=1e-3)
    assert {by_place[key]["recovered"] for key in by_place if key[3] == 0} == {0}
    assert all(row["recovered_error"] is None and row["estimate"] is not None for row in rows)
    assert -1 <= found["correlation"] <= 1
    alone = json.loads(run("patch", "--run", str(smoke_run), *WORDS, "--estimate", "--no-exact", "--json").out)
    assert [row["estimate"] for row in alone["rows"]] == pytest.approx([row["estimate"] for row in rows])
    assert {row["recovered"] for row in alone["rows"]} == {None}
    assert alone["correlation"] is None
    chosen = ("--parts", "head,attention", "--layers", "1", "--heads", "1", "--json")
    some = json.loads(run("patch", "--run", str(smoke_run), *WORDS, *chosen).out)["rows"]
    assert {(row["part"], row["layer"], row["head"]) for row in some} == {("attention", 1, None), ("head", 1, 1)}


def test_pairs_of_one_length_have_means_and_errors_by_place(run: RunCommand, smoke_run: Path, tmp_path: Path) -> None:
    words = ("patch", "--run", str(smoke_run), "--json", "--pairs")
    found = json.loads(run(*words, write_pairs(tmp_path / "a.jsonl", ONE, OTHER)).out)
    singles = [json.loads(run(*words, write_pairs(tmp_path / "b.jsonl", pair)).out) for pair in (ONE, OTHER)]
    gaps = [each["clean_metric"] - each["corrupt_metric"] for each in singles]
    assert found["pairs"]["number"] == 2
    assert found["answer"] == " the"
    assert [each["clean"] for each in found["tokens"]] == [None, " value", " of"]
    for row, *own in zip(found["rows"], *(each["rows"] for each in singles), strict=True):
        mean = sum(one["recovered"] * gap for one, gap in zip(own, gaps, strict=True)) / sum(gaps)
        assert row["recovered"] == pytest.approx(mean, abs=1e-3)
        assert row["recovered_error"] >= 0 == bool(own[0]["recovered_error"])
    outcome = run(*words, write_pairs(tmp_path / "c.jsonl", ONE, LONGER))
    assert {row["position"] for row in json.loads(outcome.out)["rows"]} == {None}
    assert "from 3 to 4 tokens" in outcome.err


def test_tokens_shared_in_one_prompt_alone_have_no_name(run: RunCommand, smoke_run: Path, tmp_path: Path) -> None:
    others = {**ONE, "corrupt": "A name of"}, {**ONE, "against": " of"}
    for other, metric in zip(others, ('logit of " the" minus logit of " a"', "logit of the answer minus"), strict=True):
        words = ("patch", "--run", str(smoke_run), "--pairs", write_pairs(tmp_path / "a.jsonl", ONE, other))
        outcome = run(*words, exits=0)
        assert metric in outcome.err
        found = json.loads(run(*words, "--json").out)
        shared = [token["position"] for token in found["tokens"] if token["clean"] is not None]
        assert shared == ([1, 2] if other is others[0] else [0, 1, 2])
        for name in ("a.png", "a.html")[other is others[1] :]:
            assert run(*words, "--out", str(tmp_path / name)).code == 0


def test_without_an_answer_the_likeliest_tokens_are_compared(smoke_run: Path) -> None:
    loaded = replace(gpt_cli.load(smoke_run), model=two_head_circuit(), tokenizer=CharTokenizer("abcdefg"))
    found = loaded.patch("eabcda", corrupt="ecbada")
    assert (found.answer, found.against) == ("b", "d")
    assert loaded.patch("eabcda", corrupt="ecbada", answer="b", against="d").rows == found.rows  # it knows no space
    heads = found["recovered"].at(part=["H0", "H1"], position=None)
    assert np.abs(heads.values).argmax(axis=0).tolist() == [0, 0]
    with pytest.raises(DataError, match='the most probable next token is "b" after both prompts'):
        loaded.patch("eabcda", corrupt="gabcda")
    with pytest.raises(DataError) as raised:
        loaded.patch("eabcda", corrupt="ecbada", answer="ba")
    assert raised.value.hint == 'a token of this model is a single character, as in answer="b"'


def test_a_word_without_its_space_is_remarked(run: RunCommand, smoke_run: Path) -> None:
    words = ("patch", "--run", str(smoke_run), *WORDS[:5])
    assert '--answer "the" has no space before it; with a space it is the token " the"' in run(*words, "the").err
    assert "no space" not in run(*words, " the").err


def test_metrics_that_hardly_differ_or_differ_the_other_way_are_remarked(run: RunCommand, smoke_run: Path) -> None:
    words = ("patch", "--run", str(smoke_run), "--answer", " the", "--parts", "head", "--json")
    sides = {}
    for clean, corrupt in (("The value of", "The name of"), ("The name of", "The value of")):
        outcome = run(*words, "--clean", clean, "--corrupt", corrupt)
        found = json.loads(outcome.out)
        gap = found["clean_metric"] - found["corrupt_metric"]
        assert ("too little for meaningful shares" in outcome.err) == (abs(gap) < 0.1)
        sides["the metric is lower on clean than on corrupt prompts" in outcome.err] = gap
    assert sides[True] < 0 < sides[False]


def test_one_edge_is_read_in_four_ways(run: RunCommand, smoke_run: Path) -> None:
    outcome = run("patch", "--run", str(smoke_run), *WORDS[:6], "--path", "0.1:1.0", "--json")
    found = json.loads(outcome.out)
    assert found["metric"] == "log_probability"
    assert [row["input"] for row in found["rows"] if row["position"] is None] == ["all", "queries", "keys", "values"]
    assert found["path"] == "0.1:1.0"
    assert "read as" in run("patch", "--run", str(smoke_run), *WORDS, "--path", "0.1:logits").out


def test_the_rows_of_an_edge_have_what_reads_also_where_its_name_has_spaces(smoke_run: Path) -> None:
    for path, head in (("0.1: 1.0 ", 0), ("0.1: 1.feed_forward", None)):
        found: Any = gpt_cli.patch(**ONE, run=smoke_run, path=path)
        assert {(row["part"], row["layer"], row["head"]) for row in found.rows} == {("path", 1, head)}
        figure = found["recovered"]
        assert figure.values.shape == tuple(map(len, figure.coords.values()))


def test_a_row_names_its_place_first_and_all_positions_together_are_none(smoke_run: Path) -> None:
    every = gpt_cli.patch(**ONE, run=smoke_run).rows
    of_head = [row for row in every if (row["part"], row["layer"], row["head"]) == ("head", 1, 1)]
    edge = gpt_cli.patch(**ONE, run=smoke_run, path="0.1:logits").rows
    for rows, more in ((of_head, []), (edge, ["input"])):
        assert [row["position"] for row in rows] == [None, 0, 1, 2]
        assert [*rows[0]] == ["part", "layer", "head", "position", *more, "recovered", "recovered_error"]


def test_an_edge_leads_to_what_reads_its_head() -> None:
    sizes = ModelConfig(context_length=8, d_model=8, num_heads=2, num_blocks=3)
    assert parse_edge("0.1:2.0", sizes) == Edge(0, 1, 2, 0)
    assert parse_edge("1.0:1.feed_forward", sizes) == Edge(1, 0, 1, "feed_forward")
    assert parse_edge("2.1:logits", sizes) == Edge(2, 1, 3, "logits")


def test_files_and_tables_have_the_figures(run: RunCommand, smoke_run: Path, tmp_path: Path) -> None:
    words = ("patch", "--run", str(smoke_run), *WORDS)
    for name in ("a.csv", "a.json"):
        assert "40 rows" in run(*words, "--out", str(tmp_path / name)).err
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    rows = [*csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text("utf-8")))]
    assert [float(row["recovered"]) for row in rows] == [row["recovered"] for row in found["rows"]]
    assert rows[0]["head"] == ""
    run(*words, "--path", "0.0:1.0", "--out", str(tmp_path / "b.png"))
    assert min(Image.open(io.BytesIO((tmp_path / "b.png").read_bytes())).size) > 100
    table = run(*words).out
    assert '1 " value" / " name"' in table
    assert [line.split()[0] for line in table.splitlines() if "all" in line].count("head") == 3


def test_over_training_every_checkpoint_has_its_shares(run: RunCommand, smoke_run: Path, tmp_path: Path) -> None:
    words = ("patch", "--run", str(smoke_run), *WORDS, "--over-training")
    found = json.loads(run(*words, "--json").out)
    assert [at["step"] for at in found["steps"]] == [10, 20]
    last = json.loads(run("patch", "--run", str(smoke_run), *WORDS, "--checkpoint", "20", "--json").out)
    assert found["steps"][-1]["rows"] == last["rows"]
    assert found["tokens"] == last["tokens"]
    table = [line.split() for line in run(*words).out.splitlines()]
    assert [line[0] for line in table] == ["step", "10", "20"]
    assert table[0][3:] == ["residual", "attention", "feed_forward", "head"]
    for name in ("a.csv", "a.png", "a.html"):
        assert "2 checkpoints" in run(*words, "--out", str(tmp_path / name)).err
    assert (tmp_path / "a.csv").read_text().startswith("step,clean_metric,corrupt_metric,part,layer,head,position,")


def test_patches_beyond_memory_are_refused(run: RunCommand, smoke_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.tools.interpret.patching.patch.available_memory", lambda: 1000)
    for more in ((), ("--over-training",)):
        outcome = run("patch", "--run", str(smoke_run), *WORDS, *more)
        assert (outcome.code, outcome.err.split("take")[0]) == (5, "error: patch: 10 changed runs of 3 tokens ")
    for edge, number in (("0.0:1.0", 20), ("0.0:logits", 4)):  # at all positions and at each; in each input of a head
        outcome = run("patch", "--run", str(smoke_run), *WORDS, "--path", edge)
        assert outcome.err.startswith(f"error: patch: {number} changed runs of 3 tokens "), outcome.err
        assert outcome.err.endswith("hint: use a shorter prompt\n")


def of_parts(*parts: str, **shares: list[float]) -> Finding:
    """A finding of a share for each layer, at all positions together and at the last one."""
    values = np.stack([np.array([shares.get(f"{part}_all", shares["last"]), shares["last"]]).T for part in parts])
    coords = {"part": parts, "layer": range(values.shape[1]), "position": (None, 0)}
    return PatchFinding({"step": 1}, (Figure("recovered", coords, values, scale="signed share"),))


def test_a_step_names_the_largest_share_of_a_part_above_or_below_0() -> None:
    found = of_parts("attention", "H0", "H2", attention_all=[0.3, -0.8, np.nan], H2_all=[0.0, 2.0, 0.0], last=[0, 0, 5])
    assert best_place(found, "attention") == "L1 -0.80"
    assert best_place(found, "head") == "L2 H0 5.00"
    assert best_place(of_parts("attention", attention_all=[np.nan], last=[5]), "attention") == "-"


def test_of_the_residual_stream_a_step_names_the_first_layer_whose_last_position_recovers_half() -> None:
    assert best_place(of_parts("residual", residual_all=[1, 1, 1], last=[0.1, 0.6, 1]), "residual") == "L1 0.60"
    assert best_place(of_parts("residual", residual_all=[1, 1], last=[0.1, 0.2]), "residual") == "-"


def test_the_residual_stream_of_unequal_pairs_is_refused(run: RunCommand, smoke_run: Path, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "pairs.jsonl", ONE, LONGER)
    words = ("patch", "--run", str(smoke_run), "--pairs", pairs, "--parts", "residual")
    for more in ((), ("--over-training",)):
        outcome = run(*words, *more, exits=2)
        assert "error: --parts: the pairs have different numbers of tokens" in outcome.err
        assert "hint: --parts attention,feed_forward,head" in outcome.err


def test_prompts_of_other_lengths_are_shown_below_each_other(run: RunCommand, smoke_run: Path) -> None:
    outcome = run("patch", "--run", str(smoke_run), "--clean", "The value of", "--corrupt", "The of", exits=3)
    assert outcome.err.splitlines()[:2] == ['clean    "The"  " value"  " of"', 'corrupt  "The"  " of"']
    assert "error: --corrupt: it has 2 tokens, but the clean prompt has 3; use equal numbers" in outcome.err
    assert f"hint: gpt tokens --run {smoke_run} TEXT shows how" in outcome.err  # not the newest run


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        ([], 2, "--clean 'The value of'"),
        (["--clean", "a"], 2, "--clean needs --corrupt"),
        (["--clean", "", "--corrupt", "a"], 2, "--clean"),
        ([*WORDS, "--parts", "mlp"], 2, "--parts"),
        ([*WORDS, "--path", "1.0"], 2, "hint: --path 0.0:logits\n"),  # an edge of every model, also of one block
        ([*WORDS, "--path", "0.0:1.5"], 2, "out of range"),
        ([*WORDS, "--path", "1.0:0.1"], 2, "computed later"),
        ([*WORDS, "--path", "0.0:1.0", "--estimate"], 2, "--estimate"),
        ([*WORDS, "--no-exact"], 2, "error: --no-exact: without exact shares"),
        ([*WORDS, "--pairs", "a.jsonl"], 2, "--pairs"),
        ([*WORDS, "--out", "a.gif"], 2, "--out"),
        ([*WORDS[:4], "--against", " a"], 2, "--against needs --answer"),
        ([*WORDS[:5], " a", "--against", " a"], 3, "the same token as the answer"),
        ([*WORDS[:5], "the value"], 3, "is not one token"),
        ([*WORDS[:5], "value"], 3, "--answer ' value', with the space"),
        ([*WORDS[:2], "--corrupt", "The value of", *WORDS[4:]], 3, "the same tokens"),
        (["--clean", "a " * 90, "--corrupt", "b " * 90], 3, "--clean: it has"),
        (["--pairs", "missing.jsonl"], 3, "missing.jsonl"),
    ],
)
def test_mistakes_are_named(run: RunCommand, smoke_run: Path, words: list[str], code: int, named: str) -> None:
    outcome = run("patch", "--run", str(smoke_run), *words, exits=code)
    assert named in outcome.err


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "contains no pair"),
        ("nonsense\n", 'pairs.jsonl:1: this is not JSON; each line is an object such as {"clean": '),
        ('{"clean": "a"}\n', "the keys clean and corrupt"),
        ('{"clean": "a", "corrupt": "b", "answr": "c"}\n', '"answr" is not a key'),
        ('{"clean": "a", "corrupt": 5}\n', "corrupt is not a text"),
        ('{"clean": "a"}\n[]\n\n{"clean": "a", "corrupt": ""}\n', "pairs.jsonl:4: corrupt is not a text, or is empty"),
        ('{"clean": "a", "corrupt": "b", "against": "c"}\n', "against needs answer"),
        (f'{json.dumps(ONE)}\n\n{{"clean": "a", "corrupt": "b"}}\n', "pairs.jsonl:3: its keys differ"),
        (f"{json.dumps(ONE)}\n{json.dumps({**ONE, 'answer': 'no way'})}\n", "pairs.jsonl:2: answer"),
    ],
)
def test_a_wrong_pair_is_named(run: RunCommand, smoke_run: Path, tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "pairs.jsonl").write_text(content)
    outcome = run("patch", "--run", str(smoke_run), "--pairs", str(tmp_path / "pairs.jsonl"), exits=3)
    assert named in outcome.err


def test_numbers_that_are_not_finite_are_a_wrong_checkpoint(run: RunCommand, copied: Path) -> None:
    overflow(copied / "checkpoints/best.safetensors")
    for words in (WORDS, WORDS[:4]):
        outcome = run("patch", "--run", str(copied), *words, exits=4)
        assert "not finite" in outcome.err


def test_a_change_that_no_head_reaches_has_no_share_at_any_step(run: RunCommand, here: Path) -> None:
    Path("ab.txt").write_text("a b x\n" * 200)
    small = ("--config", "smoke", "--data", "ab.txt", "--set", "tokenizer.kind=char", "--max-steps", "1", "--quiet")
    run("train", *small, "--set", "model.attention_window=2", "--out", "runs/near", exits=0)
    words = ("--clean", f"a {'x' * 12}", "--corrupt", f"b {'x' * 12}", "--answer", "a", "--against", "b")
    outcome = run("patch", *words, "--over-training", "--json", exits=0)  # a warning would be an error
    (at,) = json.loads(outcome.out)["steps"]
    assert at["clean_metric"] == at["corrupt_metric"]
    assert {(row["recovered"], row["recovered_error"]) for row in at["rows"]} == {(None, None)}
