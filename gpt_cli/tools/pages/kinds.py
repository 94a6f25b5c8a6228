"""The kinds of pages, and the files of these folders that each consists of."""

from __future__ import annotations

from gpt_cli.tools.pages.html_page import PageParts


def _scripts(folder: str, names: str) -> tuple[str, ...]:
    """List scripts of a folder, in the order in which the page runs them."""
    return tuple(f"{folder}/{name}.js" for name in names.split())


# what pages share: the heads with their scores and one head on its text; the steps of a training; grids of layers
_VIEWS = _scripts("attention_views", "words weights maps lines heads scores scored tokens writes views")
_SCATTER = ("attention_views/scatter.js",)
_FILM = _scripts("film", "words film")
_GRID_OF_LENS, _GRID_OF_PATCHES = _scripts("grids", "words grid lens"), _scripts("grids", "words grid patch")

ATTENTION = PageParts(
    "attention",
    (*_VIEWS, *_SCATTER, *_GRID_OF_LENS, *_FILM, *_scripts("attention", "words packed packed_writes page")),
)
HANDOUT = PageParts("handout", _scripts("handout", "words page"))
HEADS = PageParts("heads", ("attention_views/words.js", *_SCATTER, *_FILM, *_scripts("heads", "words page")))
LENS = PageParts("lens", (*_GRID_OF_LENS, *_scripts("lens", "words curves page")))
PATCH = PageParts("patch", (*_GRID_OF_PATCHES, *_FILM, *_scripts("patch", "words page")))
REPORT = PageParts(
    "report",
    (
        *_scripts("attention_views", "weights maps"),
        "attention/packed.js",
        *_scripts("report", "words numbers runs curves panel samples attention page"),
    ),
)
# a trained model runs in this page: its engine computes in a worker
ENGINE = _scripts(
    "model/engine",
    "refusal numbers rows changes layers positions ngrams attention model reading tokenizer byte_pairs kept streaming "
    "labels sampling streams explain heads lens patching worker",
)
_OF_MODEL = (
    "words calling engine/labels engine/rows live settings writing candidates reading changing second head_views "
    "effects explaining page"
)
MODEL = PageParts("model", (*_VIEWS, *_GRID_OF_LENS, "grids/patch.js", *_scripts("model", _OF_MODEL)), worker=ENGINE)
