"""A model for a class: a folder of pages that need no network, opened from the first."""

from __future__ import annotations

from pathlib import Path

from gpt_cli.exchange.model_page import ModelPage
from gpt_cli.files import write_directory
from gpt_cli.inspecting.attention_page import attention_page, prompt_content
from gpt_cli.inspecting.dump import AttentionDump
from gpt_cli.inspecting.film import Film
from gpt_cli.pages.building import build_page
from gpt_cli.pages.handout import PARTS
from gpt_cli.pages.model import PARTS as MODEL


def write_handout(out: Path, model: ModelPage, dump: AttentionDump, film: Film | None) -> None:
    """Write the folder; its first page has the title, the prompt and the origin of the model's page.

    Raises EnvironmentFailure when the system refuses.
    """
    title, prompt, origin = (model.content[key] for key in ("title", "prompt", "origin"))
    pages = {"model": build_page(MODEL, model.content, model.weights), "attention": attention_page(dump, title)}
    if film:
        pages["film"] = film.page
    about = {"title": title, "prompt": prompt_content(prompt), "origin": origin, "pages": list(pages)}
    first = build_page(PARTS, {"handout": about})
    write_directory(out, {"index.html": [first], **{f"{name}.html": [page] for name, page in pages.items()}})
