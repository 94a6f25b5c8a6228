"""The arguments of the `gpt data` commands, as Request classes. Needs no torch."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from gpt_cli.common.files import cache_directory, require_no_file
from gpt_cli.common.host import Host
from gpt_cli.config import Config
from gpt_cli.config.load import build_config, read_config, shipped_config
from gpt_cli.config.request import EMPTY, NONE, Flag, MaybeConfigFile, MaybePath, Request, Settings, Several, Sources
from gpt_cli.config.strict_yaml import Document
from gpt_cli.errors import UsageError
from gpt_cli.text import datasets
from gpt_cli.text.datasets import Dataset


class ListRequest(Request):
    """List the corpora that ‹data› accepts by name."""


class FetchRequest(Request):
    """Fetch corpora into the per-user cache, check their digests, and list their paths."""

    has_json = False

    names: Annotated[Several[str], Flag("NAME", offers="texts", position=True)] = Field(
        kw_only=False, description="Names that `gpt data list` prints, or all."
    )
    out: Annotated[MaybePath, Flag("DIR")] = Field(default=NONE, description="Also write the text to this directory.")

    def find(self, host: Host) -> Sequence[Dataset]:
        """Look up the datasets; raise UsageError for a name that the catalogue lacks."""
        if self.out is not None:
            require_no_file(self.out)
        return [*datasets.ENTRIES.values()] if [*self.names] == ["all"] else [*map(datasets.find, self.names)]


class StatsRequest(Request):
    """Count the documents, characters, bytes and lines of a text; with ‹config›, estimate its tokens."""

    source: Sources = Field(kw_only=False)
    config: MaybeConfigFile = NONE
    settings: Settings = EMPTY

    def find(self, host: Host) -> Config:
        """Return the config `config` (None: the default), changed by `settings` and `source`; UsageError if invalid."""
        flags = {"data.source": ("source", self.source[0] if len(self.source) == 1 else [*self.source] or None)}
        if self.config is None:
            return build_config(Document({}, {}), "‹settings›", self.settings, flags)
        return read_config(self.config, self.settings, flags)


class PrepareRequest(StatsRequest):
    """Make the tokenizer and the tokens of a text, so that gpt train with this config starts at once.

    gpt train does the same by itself. A preparation that was stopped continues where it stopped.
    """

    source: Sources = Field(
        default=EMPTY, kw_only=False, description="The text, as in gpt train --data. Default: the text of the config."
    )

    def find(self, host: Host) -> Config:
        """Read the config; raise UsageError if it is wrong or missing, EnvironmentFailure without a cache folder."""
        if self.config is None:
            sentence = "‹config› is missing; it sets the tokenizer and the validation part of the text"
            raise UsageError("gpt data prepare", sentence, hint="gpt data prepare my.txt --config tiny")
        config = super().find(host)
        host.notices(config.unused(shipped_config(self.config)))
        cache_directory("tokens")  # a user without one has nowhere to keep anything
        return config


class VerifyRequest(StatsRequest):
    """Read every byte of a text and of the tokens made from it, and compare them with their digests.

    With ‹config›, the text is read as that config reads it: data.separator, data.text_field and so on.
    """
