"""The result of `gpt_cli.load`: a trained model, with functions of `gpt_cli` as its methods."""

from typing import Any

from gpt_cli import api
from gpt_cli.checkpoints.load import Loaded
from gpt_cli.config.suggest import function_meant
from gpt_cli.errors import shown


class Trained(Loaded):
    """A trained model with its tokenizer and config; functions of gpt_cli, such as `sample`, are its methods.

    Most methods use the model in memory; `info` and `export_model` read the checkpoint file.
    """

    attention = api.attention
    evaluate = api.evaluate
    explain = api.explain
    export_model = api.export_model
    heads = api.heads
    info = api.info
    lens = api.lens
    patch = api.patch
    sample = api.sample
    tokens = api.tokens

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError for an unknown attribute; suggest a method for a typo or another library's name."""
        methods = [each for each, kind in vars(Trained).items() if isinstance(kind, api.Command)]
        meant = None if name.startswith("_") else function_meant(name, methods)
        hint = f"; did you mean {meant}?" if meant else ""
        raise AttributeError(f"'Trained' object has no attribute {name!r}{hint}")

    def __repr__(self) -> str:
        """Return the checkpoint file, the step and the number of parameters in one line."""
        num_parameters = sum(weight.numel() for weight in self.model.parameters())
        return f"Trained({shown(self.path)}, step {self.step:,}, {num_parameters:,} parameters)"
