"""Write every picture that README and the pages show, from runs that are trained for it.

make screenshots

The runs stay in runs/screenshots/, so that another call only draws. Needs Chromium, as the tests of pages do.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

DOCS = Path(__file__).parent.resolve()
FOLDER = DOCS.parent / "runs" / "screenshots"
SENTENCE = "The function returns the value of the expression. If the value is not a string, the"
ONE_HEAD = f"attn-dump --run runs/tiny --prompt '{SENTENCE} function raises an exception.'"
TRAIN = {
    "tiny": "--config tiny",
    "induction": "--config induction",
    "circuit": "--config induction --set model.ngram_embedding=null --set model.positions=rope "
    "--set train.save_every=100 --set train.keep_checkpoints=10 --max-steps 900",
}
DRAW = {
    "attention.png": "attn-dump --run runs/tiny --layers 0-2 --prompt 'If the object is a class instance, the "
    "method of the class is called with the object.'",
    "head-full-stop.png": f"{ONE_HEAD} --layers 2 --heads 3",
    "head-noun.png": f"{ONE_HEAD} --layers 1 --heads 1",
    "head-previous.png": f"{ONE_HEAD} --layers 3 --heads 1",
    "induction.png": "heads --run runs/induction --over-training",
    "circuit.png": "patch --run runs/circuit --pairs pairs.jsonl",
}
PAGES = {
    "page.png": (ONE_HEAD, "attention.html", 1440),
    "model-page.png": (f"export --run runs/tiny --format html --prompt '{SENTENCE} return'", "model.html", 1490),
}


def gpt(words: str, *more: str) -> None:
    """Run a command in FOLDER."""
    environment = os.environ | {"GPT_LANGUAGE": "en"}
    subprocess.run(
        [sys.executable, "-m", "gpt_cli", *shlex.split(words), *more], cwd=FOLDER, env=environment, check=True
    )


def choose(page: Page, name: str) -> None:
    """What the reader of a page has chosen: a head and a token; on the page of a model that head is off."""
    if name == "page.png":
        page.click('button[aria-label="layer 2 head 3"]')
        page.locator("#text span", has_text="string").first.click()
    else:
        page.click('button[aria-label="layer 1 head 3"]')
        page.click("#off")
        page.locator("#effect", has_text="nats").wait_for()  # a function as text would be refused by the page's policy
    page.evaluate("document.activeElement.blur()")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for run, flags in TRAIN.items():
        if not (FOLDER / "runs" / run / "checkpoints" / "best.safetensors").exists():
            gpt(f"train {flags} --out runs/{run} --overwrite --quiet")
    (pairs,) = re.findall(r"```python\n(import json\n.*?)```", (DOCS / "circuit.md").read_text("utf-8"), re.DOTALL)
    subprocess.run([sys.executable, "-c", pairs], cwd=FOLDER, check=True)
    for picture, words in DRAW.items():
        gpt(words, "--out", str(DOCS / picture))
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, chromium_sandbox=os.geteuid() != 0)
        for picture, (words, name, height) in PAGES.items():
            (FOLDER / name).unlink(missing_ok=True)
            gpt(words, "--out", name)
            page = browser.new_page(viewport={"width": 1240, "height": height}, color_scheme="light", locale="en-US")
            page.goto((FOLDER / name).as_uri())
            page.wait_for_selector("html[data-ready]")
            choose(page, picture)
            page.screenshot(path=DOCS / picture)
        browser.close()


if __name__ == "__main__":
    main()
