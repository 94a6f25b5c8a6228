"""The lesson on a circuit and the page on evidence: their commands run, and print what the pages show."""

import json
import re
from pathlib import Path

import pytest
from support.documents import DOCS, blocks, commands, output, reported, shown

PAGES = ("circuit.md", "circuit.zh-CN.md")


def write_pairs() -> None:
    """The file that the page makes: 64 pairs."""
    (program,) = blocks(DOCS / PAGES[0], "python")
    exec(program, {})
    assert len(Path("pairs.jsonl").read_text().splitlines()) == 64


def test_every_command_of_the_lesson_runs(here: Path) -> None:
    """Of a few steps on a few documents; the page says what many give."""
    write_pairs()
    pairs = Path("pairs.jsonl").read_text().splitlines()
    words = [json.loads(line)["clean"][:12] for line in pairs]
    Path("pairs.jsonl").write_text("\n".join(pairs[:8]))
    Path("few.jsonl").write_text("".join(json.dumps({"text": 3 * word}) + "\n" for word in words))
    train, *rest = commands(DOCS / PAGES[0])
    few = re.sub(r"--max-steps \d+", "--max-steps 4 --set train.eval_every=2 --set train.batch_size=8", train)
    output(f"{few.replace('save_every=100', 'save_every=2')} --data few.jsonl")
    for command in rest:
        output(command)


@pytest.mark.long  # 40 s
def test_the_lesson_finds_its_circuit_and_the_page_shows_it(here: Path, two_threads: None) -> None:
    """One test, since the training takes 20 seconds and tests are shared among processes.

    Training amplifies the last digits: on some processors one thread trains heads that work together otherwise.
    """
    write_pairs()
    train, *rest = shown(PAGES[0])
    loss = reported(train[0])["validation_loss"]
    heads = "gpt patch --run runs/circuit --pairs pairs.jsonl --parts head"
    rows = [row for row in reported(heads)["rows"] if row["position"] is None]
    best = {layer: max((r for r in rows if r["layer"] == layer), key=lambda r: r["recovered"]) for layer in (0, 1)}
    assert all(row["recovered"] > max(0.4, 4 * row["recovered_error"]) for row in best.values())
    edge = f"0.{best[0]['head']}:1.{best[1]['head']}"
    by = {
        row["input"]: row["recovered"]
        for row in reported(f"gpt patch --run runs/circuit --pairs pairs.jsonl --path {edge}")["rows"]
        if row["position"] is None
    }
    assert by["keys"] > 0.3
    assert by["keys"] > abs(by["queries"]) + abs(by["values"])
    early, late = (reported(f"{heads} --over-training")["steps"][n] for n in (0, -1))
    assert abs(early["clean_metric"] - early["corrupt_metric"]) < 0.1
    assert late["clean_metric"] - late["corrupt_metric"] > 2
    if loss == pytest.approx(1.9358, abs=5e-5):  # the same arithmetic as that of the page
        for command, lines in rest:
            printed = output(command)
            missing = [line for line in lines if line not in printed]
            assert not missing, f"{command}\n" + "\n".join([*missing, "in", *printed])


@pytest.mark.long  # 30 s
def test_two_heads_are_worth_more_than_the_sum_of_each(here: Path) -> None:
    page = DOCS / "evidence.md"
    train, _, *evaluations = commands(page)
    output(f"{train} --quiet")
    losses = [reported(command)["runs"][0]["loss"] for command in evaluations]
    assert losses[3] - losses[0] > losses[1] + losses[2] - 2 * losses[0] + 0.1
    rows = re.findall(r"^\| (?:none|L\d H\d|both) \| (\d\.\d{3}) \|", page.read_text(), re.MULTILINE)
    assert losses == pytest.approx([float(loss) for loss in rows], abs=0.15)
