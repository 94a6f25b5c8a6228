"""Scripts of our pages without their page: functions called in Chromium with data of a test."""

import json
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from playwright.sync_api import Page

RunScript = Callable[..., Any]

# numbers that JSON lacks come back as None, typed arrays as lists
_CALL = """async (given) => {
  'use strict';
  %s
  const result = await (%s)(JSON.parse(given));
  return JSON.stringify(result, (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value)) ?? "null";
}"""


def run_script(page: Page, scripts: Sequence[str], function: str, given: Any = None) -> Any:
    """Call a function of JavaScript with `given`, and give back its result; both are data that JSON can hold.

    `scripts` are files of gpt_cli/tools/pages, whose names the function may use. An exception of JavaScript is raised here as
    playwright's Error, with its message.
    """
    sources = [(resources.files("gpt_cli.tools.pages") / name).read_text("utf-8") for name in scripts]
    return json.loads(page.evaluate(_CALL % ("\n".join(sources), function), json.dumps(given)))
