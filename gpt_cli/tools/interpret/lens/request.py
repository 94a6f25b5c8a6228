"""The arguments of `gpt lens`, as a class that checks them. Needs no torch."""

from typing import Annotated

from pydantic import Field

from gpt_cli.common.host import Host
from gpt_cli.config.field_types import Switch
from gpt_cli.config.request import NONE, Flag, MaybePath
from gpt_cli.errors import UsageError
from gpt_cli.tools.interpret.request import ReadingRequest, ToInspect, require_report

MEASURES = ("loss", "rank", "probability", "divergence")  # of a layer, for each token
UNITS = {"loss": "nats", "divergence": "nats"}
GAINS = ("loss", "divergence")  # the measures that maps lower


class LensRequest(ReadingRequest):
    """Report what each layer would already predict.

    After each block, the final norm and the output layer turn the residual stream into predictions (logit lens). For
    each layer: the loss of these predictions, the rank and probability of the true next token, and the divergence from
    the predictions of the last layer.
    """

    tuned: Switch = Field(
        default=False,
        description="Also pass each stream through an affine map that is trained to predict what the last layer "
        "predicts (tuned lens). The maps are trained on the text of the run, in about two minutes, and kept beside it.",
    )
    over_training: Switch = Field(default=False, description="The means by step, from all checkpoints of the run.")
    out: Annotated[MaybePath, Flag("FILE")] = Field(
        default=NONE,
        description="A .json or .csv file, or a picture (.png, .svg, .pdf) or a page (.html) with a map of layers by "
        "tokens or the curves of a text. Default: a table in the terminal.",
    )

    exclusive = (*ReadingRequest.exclusive, ("over_training", "checkpoint", "tuned"))

    def find(self, host: Host) -> ToInspect:
        """Return layers, and prompt or text; UsageError for wrong layers or `out`, or for `tuned` with one block."""
        if self.out is not None:
            page = self.film if self.prompted else "‹out=lens.png›"
            require_report(self.out, page if self.over_training else None)
        target = self.reading(host, by_step=self.over_training)
        if self.tuned and target.header.config.model.num_blocks == 1:
            wrong = "this model has one block, whose stream the output layer reads, so there is no map to train"
            raise UsageError("‹tuned›", wrong, hint="leave out ‹tuned›")
        return target
