"""How large the page of a model is, and how fast it computes in Chromium; part of `make bench`.

The model is a fresh one of the config's sizes, since no weight changes how long its products take. Its prompt has 20
tokens. From the page being asked for, the first answer takes `opened`; a further token takes `token`, the median of
`--tokens`; a key takes `key`, the median of 20, from the letter to all that it changes on the page.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.laboratory import find_chromium, fresh_checkpoint
from gpt_cli.config.load import read_config
from gpt_cli.tools.exchange.model_page import ModelPage, model_page
from gpt_cli.tools.pages.html_page import MODEL, build_page

PROMPT = "abcdefghijklmnopqrst"  # 20 tokens: no pairs of these bytes are merged
# notes when the worker is asked and answers, and when the page has shown what it answered
_WATCH = """
  window.noted = [];
  const note = (what) => noted.push([what, performance.now()]);
  window.Worker = class extends Worker {
    constructor(source) {
      super(source);
      window.worker = this;
      this.methods = new Map();
      this.addEventListener("message", ({ data }) => data.progress || note(`answered ${this.methods.get(data.id)}`));
    }
    postMessage(message) {
      this.methods.set(message.id, message.method);
      super.postMessage(message);
    }
  };
  addEventListener("input", () => note("key"), true);
  addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
    if (document.getElementById("model").getAttribute("aria-busy") === "false") note("shown");
  }).observe(document.getElementById("model"), { attributes: true, attributeFilter: ["aria-busy"] }));
"""
# asks the engine for a text that grows by a token, and says how long each took
_GROW = """async (numTokens) => {
  const ids = Array.from({ length: 20 + numTokens }, (_, place) => 97 + place % 20);
  const times = [];
  const own = worker.onmessage;
  for (let length = 20; length <= ids.length; length++) {
    const started = performance.now();
    await new Promise((resolve) => {
      worker.onmessage = ({ data }) => data.progress || resolve();
      worker.postMessage({ id: `grow ${length}`, method: "run", args: { ids: ids.slice(0, length) } });
    });
    times.push(performance.now() - started);
  }
  worker.onmessage = own;
  return times.slice(1);
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", action="append", help="repeatable; default: tiny and small")
    parser.add_argument("--tokens", type=int, default=60)
    arguments = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("no Chromium is installed (Debian: apt install chromium-headless-shell)")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--disable-gpu"], chromium_sandbox=False)
        rows = []
        for name in arguments.config or ["tiny", "small"]:
            rows.append(measured(browser, name, Path(folder), arguments.tokens))
            print(_line(rows[-1]), flush=True)
        print(json.dumps({"chromium": browser.version, "rows": rows}))


def measured(browser: Browser, name: str, folder: Path, num_tokens: int) -> dict[str, Any]:
    """The size of a config's page, which is written to a folder, and its times."""
    out, page = folder / f"{Path(name).stem}.html", fresh_page(name)
    out.write_bytes(build_page(MODEL, *page))
    row = {
        "config": name,
        "kind": page.content["origin"]["kind"],
        "parameters": page.content["origin"]["parameters"],
        "bytes": out.stat().st_size,
    }
    return row | timed(browser.new_page(), out, num_tokens)


def fresh_page(name: str) -> ModelPage:
    """The page of a model with random weights, and tokens of eight bytes beside the single ones."""
    return model_page(fresh_checkpoint(read_config(name)), None, name, title="", prompt=PROMPT)


def timed(page: Page, file: Path, num_tokens: int) -> dict[str, float]:
    """Milliseconds: until the first answer, for a token, and for a key."""
    page.add_init_script(_WATCH)
    page.goto(file.as_uri())
    _settle(page, 0)
    opened = next(time for what, time in noted(page) if what == "answered run")
    token = statistics.median(page.evaluate(_GROW, num_tokens))
    page.focus("#prompt")
    keys = []
    for letter in PROMPT:
        before = len(noted(page))
        page.keyboard.type(letter)
        of_key = _settle(page, before)
        keys.append(of_key[-1][1] - next(time for what, time in of_key if what == "key"))
    page.close()
    return {"opened": opened, "token": token, "key": statistics.median(keys)}


def noted(page: Page) -> list[tuple[str, float]]:
    """What happened on the page, and when in milliseconds."""
    return page.evaluate("noted")


def _settle(page: Page, count: int) -> list[tuple[str, float]]:
    """What happened after the first `count` events, once the page shows it."""
    while not (found := noted(page)[count:]) or found[-1][0] != "shown":
        page.wait_for_timeout(50)
    return found


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['config']:8} {row['kind']:8} {row['bytes'] / 1e6:6.1f} MB  first answer {row['opened']:5.0f} ms  "
        f"{1000 / row['token']:5.1f} tokens/s  a key {row['key']:5.1f} ms"
    )


if __name__ == "__main__":
    main()
