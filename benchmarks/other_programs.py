"""Whether `gpt` reads what others write: documents of LibreOffice, tables and records of Hugging Face's datasets.

    apt-get install libreoffice-writer-nogui
    python -m benchmarks.other_programs --data a.txt --data chinese.txt --datasets PYTHON

Twenty texts of a few paragraphs from the texts named, and twenty lists of questions with answers, go through each form
of each program. Documents must give the paragraphs again; a PDF may differ in white space, as its lines end where those
of the page end. Tables and records must give the token ids of our own form. PYTHON is a python that has `datasets`.
"""

from __future__ import annotations

import argparse
import html
import json
import random
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from gpt_cli.config import Config, DataConfig
from gpt_cli.text.encode import encode_parts
from gpt_cli.text.load import read_data, split_of

NUMBER = 20
OFFICE = {
    "docx": "MS Word 2007 XML",
    "odt": "writer8",
    "rtf": "Rich Text Format",
    "epub": "EPUB",
    "html": "HTML (StarWriter)",
    "pdf": "writer_pdf_Export",
}
MARKUP = re.compile(r"[][*_`#<>|\\^~$\"']|--|\.\.\.")  # what a converter may write in another way
WRITE = """
import json
from datasets import Dataset
for name, columns in json.load(open("columns.json")).items():
    data = Dataset.from_dict(columns)
    data.to_json(f"{name}.jsonl")
    data.to_json(f"{name}.json", lines=False, orient="records")
    data.to_parquet(f"{name}.parquet")
    if all(isinstance(column[0], (str, int)) for column in columns.values()):
        data.to_csv(f"{name}.csv", index=False)
"""


def office(texts: list[list[str]], folder: Path) -> dict[str, int]:
    """The number of texts that come back from each of LibreOffice's formats."""
    pages = []
    for number, paragraphs in enumerate(texts):
        body = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs)
        pages.append(folder / f"{number:02}.html")
        pages[-1].write_text(f'<html><head><meta charset="utf-8"></head><body>{body}</body></html>')
    equal = {}
    for ending, name in OFFICE.items():
        command = ["soffice", "--headless", "--infilter=HTML (StarWriter)", "--convert-to", f"{ending}:{name}"]
        subprocess.run([*command, "--outdir", folder / ending, *pages], check=True, capture_output=True)
        read = [document(folder / ending / f"{page.stem}.{ending}") for page in pages]
        written = ["\n\n".join(paragraphs) for paragraphs in texts]
        if ending == "pdf":
            read, written = ([re.sub(r"\s", "", text) for text in each] for each in (read, written))
        equal[ending] = sum(one == other for one, other in zip(read, written, strict=True))
    return equal


def document(path: Path) -> str:
    """The text of a file, which is one document."""
    blocks = [*read_data(DataConfig(source=str(path))).blocks()]
    assert sum(block.starts for block in blocks) == 1
    return "".join(block.text for block in blocks).strip()


def records(paragraphs: list[str], draw: random.Random, folder: Path, python: str) -> dict[str, int]:
    """The number of lists whose ids come back from each form that datasets writes."""
    columns, own = dict[str, dict[str, list[Any]]](), dict[str, Path]()
    for number in range(NUMBER):
        texts = [draw.choice(paragraphs) + ' "q",\n2' * (number % 2) for _ in range(10 + number)]
        questions, answers = ([draw.choice(paragraphs) for _ in range(12)] for _ in range(2))
        pairs = [*zip(questions, answers, strict=True)]
        said = [[{"role": "user", "content": one}, {"role": "assistant", "content": other}] for one, other in pairs]
        shared = [[{"from": "human", "value": one}, {"from": "gpt", "value": other}] for one, other in pairs]
        forms = {
            "text": {"id": [*range(len(texts))], "text": texts},
            "prompt": {"prompt": questions, "completion": answers},
            "question": {"question": questions, "answer": answers},
            "alpaca": {"instruction": questions, "input": [""] * 12, "output": answers},
            "messages": {"messages": said},
            "sharegpt": {"conversations": shared},
        }
        columns |= {f"{name}-{number}": form for name, form in forms.items()}
        for name, rows in (
            ("text", [{"text": text} for text in texts]),
            ("pairs", [{"prompt": one, "completion": other} for one, other in pairs]),
        ):
            own[f"{name}-{number}"] = folder / f"own-{name}-{number}.jsonl"
            own[f"{name}-{number}"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "columns.json").write_text(json.dumps(columns))
    subprocess.run([python, "-c", WRITE], cwd=folder, check=True, capture_output=True)
    equal = dict[str, int]()
    for name in columns:
        form, _, number = name.partition("-")
        expected = digest(own[f"{'text' if form == 'text' else 'pairs'}-{number}"])
        for path in sorted(folder.glob(f"{name}.*")):
            key = f"{form}{path.suffix}"
            equal[key] = equal.get(key, 0) + (digest(path) == expected)
    return equal


def digest(path: Path) -> str:
    """The sha256 of all token ids of a file."""
    length = 16 if "text" in path.name else 1024
    config = Config().changed(
        data={"source": str(path), "validation_fraction": 0.2},
        tokenizer={"kind": "byte"},
        model={"context_length": length},
    )
    return encode_parts(*split_of(read_data(config.data), config.data), config).digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", type=Path, required=True, help="a text with blank lines; repeatable")
    parser.add_argument("--datasets", metavar="PYTHON", help="a python that has datasets")
    arguments = parser.parse_args()
    draw = random.Random(5)
    paragraphs = [
        " ".join(part.split()) for path in arguments.data for part in path.read_text("utf-8").split("\n\n") if part
    ]
    paragraphs = [one for one in paragraphs if 20 < len(one) < 300 and one.isprintable() and not MARKUP.search(one)]
    texts = [draw.sample(paragraphs, 5) for _ in range(NUMBER)]
    with tempfile.TemporaryDirectory() as folder:
        equal = office(texts, Path(folder))
    if arguments.datasets:
        with tempfile.TemporaryDirectory() as folder:
            equal |= records(paragraphs, draw, Path(folder), arguments.datasets)
    for form, number in equal.items():
        print(f"{form}: {number} of {NUMBER} equal")


if __name__ == "__main__":
    main()
