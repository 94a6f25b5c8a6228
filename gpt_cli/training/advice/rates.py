"""Define `Advice`, a sentence with flags to try, and compute usual learning rates. Imports no torch."""

from dataclasses import dataclass

from gpt_cli.common.spelling import as_flags
from gpt_cli.config import Config, DataConfig
from gpt_cli.errors import visible
from gpt_cli.text.sources import STDIN

# the best rates of AdamW times the width, in the shipped configs: 0.3 at a width of 32, 0.5 to 0.6 from 128 to 512
RATE_TIMES_WIDTH = 0.5
MUON_RATE = 0.02  # Jordan et al. 2024; steps of Muon are as large at any width
HARMLESS_EPOCHS = 4.0  # a text read so often is almost as good as a new one: Muennighoff et al. 2023, section 5
_DOCUMENTS_AT_ONCE = 4  # a window that contains this many is mostly about other documents
_SMALLEST_CONTEXT = 16
MORE_TEXT = "more text, another ‹data=FILE› beside the first"


@dataclass(frozen=True)
class Advice:
    """A sentence about a problem of a training, flags to try, and `degree`: how bad the problem is (0: not measured).

    `kind` names the problem, such as "stuck". gpt reports a problem once, and again if its `degree` is 4 times as high.
    """

    kind: str
    sentence: str
    flags: str
    degree: float = 0.0

    def __str__(self) -> str:
        return as_flags(f"{self.sentence}; try {self.flags}")


@dataclass(frozen=True)
class Rate:
    """The learning rate of most of a model's weights: the key of its setting, its value, and gpt's `usual` value.

    The usual value is the same for all models that Muon trains; for AdamW, it is inversely proportional to d_model.
    """

    key: str
    value: float
    usual: float

    @property
    def is_high(self) -> bool:
        """Whether the learning rate is more than twice the usual learning rate."""
        return self.value > 2 * self.usual

    @property
    def is_low(self) -> bool:
        """Whether the learning rate is less than half of the usual learning rate."""
        return self.value < self.usual / 2

    @property
    def lower(self) -> str:
        """The flag that lowers the learning rate: to `usual` if `is_high`, else to a third of `value`."""
        return self.flag(self.usual if self.is_high else one_digit(self.value / 3))

    @property
    def other(self) -> str:
        """The flag that changes the learning rate: to `usual` if `is_low` or `is_high`, else to a third of `value`."""
        return self.flag(self.usual) if self.is_low else self.lower

    def flag(self, value: float) -> str:
        """Return the flag that sets this learning rate to `value`, such as ‹train.learning_rate=0.001›."""
        return f"‹train.{self.key}={value:g}›"


def rate_of(config: Config) -> Rate:
    """Return Muon's learning rate if the config uses Muon, which updates all matrices inside blocks; else AdamW's."""
    settings = config.train
    if settings.optimizer == "muon":
        return Rate("muon_learning_rate", settings.muon_learning_rate, MUON_RATE)
    return Rate("learning_rate", settings.learning_rate, one_digit(RATE_TIMES_WIDTH / config.model.d_model))


def fitting_context(context_length: int, mean: float) -> int:
    """Return `context_length`, or a smaller value if a window of that length holds over 4 documents of `mean` tokens.

    The smaller value is the least power of two, 16 or more, into which 2 such documents fit.
    """
    enough = max(_SMALLEST_CONTEXT, 1 << max(0, int(2 * mean - 1)).bit_length())
    return min(context_length, enough) if context_length > _DOCUMENTS_AT_ONCE * mean else context_length


def text_name(data: DataConfig) -> str:
    """Return what messages call a training's text: its source, or "the text" for several sources or standard input."""
    return visible(data.source) if isinstance(data.source, str) and data.source != STDIN else "the text"


def one_digit(number: float) -> float:
    """Round a number to one significant digit."""
    return float(f"{number:.1g}")
