"""Give advice before the first step, based on the sizes of model and text and on the learning rates."""

from collections.abc import Iterator

from gpt_cli.common.units import quantity
from gpt_cli.config import ModelConfig
from gpt_cli.errors import counted
from gpt_cli.model.costs import parameters_by_part
from gpt_cli.training.advice.rates import HARMLESS_EPOCHS, MORE_TEXT, Advice, fitting_context, one_digit, rate_of
from gpt_cli.training.events import Prepared

# Epochs times parameters for each token. `tiny` on its own text has 104, and learns to the end; without dropout, its
# loss rises again (3.47, then 3.91). With dropout the loss turned at 115 to 400 in our runs (note 0021).
_TOO_MANY_PASSES = {True: 400.0, False: 75.0}  # with dropout, without it
_GOOD_PASSES = 200.0
_PARAMETERS_PER_TOKEN = 20  # `tiny` has 7 on its text; larger models learn no more from a text
_SOME_DROPOUT = 0.1
_NARROWEST = 32
_FEWEST_STEPS = 50
# of the parameters; with half of them in vectors of single tokens, `smoke` still learns
_MOST_OF_MODEL, _ENOUGH_OF_MODEL = 0.75, 0.5
_SMALLEST_VOCABULARY = 512
# with 7.5 times the usual rate `tiny` learns well, with 75 times it stays at the frequencies of its tokens; with 1/400
# it learns in 200 steps what the usual rate gives in 15
_FAR_ABOVE, _FAR_BELOW = 10, 50


def before_training(start: Prepared) -> list[Advice]:
    """Return advice on settings; [] if the run is resumed, starts from another model's weights, or has no step to take.

    Advice that the vocabulary is too large for the model replaces the warning that the model will memorise its text.
    """
    if start.step or start.began_from is not None or not start.steps_left:
        return []
    return [*(list(_vocabulary(start)) or _memorised(start)), *_context(start), *_rate(start)]


def _memorised(start: Prepared) -> Iterator[Advice]:
    """Yield advice if the model is so large, and will read its text so often, that the model will memorise the text.

    Yields none if the model has a teacher, which delays memorising, or if gpt limited the steps to avoid memorising.
    """
    tokens, model, settings = start.num_training_tokens, start.config.model, start.config.train
    passes = start.epochs_left * start.costs.parameters / tokens
    prevented = settings.teacher_share is not None or start.ends_early
    if prevented or start.epochs_left <= HARMLESS_EPOCHS or passes <= _TOO_MANY_PASSES[model.dropout > 0]:
        return
    size, epochs = quantity(start.costs.parameters), f"{start.epochs_left:,.0f}"
    sentence = f"a model of {size} parameters reads {quantity(tokens)} tokens {epochs} times, and will memorise them"
    sizes = {model.d_model: start.costs.parameters}
    for width in narrower(model):
        sizes[width] = sum(parameters_by_part(model.changed(d_model=width), start.vocab_size).values())
    width = next((width for width, size in sizes.items() if size <= _PARAMETERS_PER_TOKEN * tokens), min(sizes))
    flags = [] if width == model.d_model else [f"‹model.d_model={width}›"]
    flags += [] if model.dropout else [f"‹model.dropout={_SOME_DROPOUT}›"]
    share = _GOOD_PASSES / start.epochs_left * tokens / sizes[width]
    steps = int(one_digit(share * start.steps_left))
    if steps < _FEWEST_STEPS:
        flags = [MORE_TEXT]
    elif share < 1 and settings.max_time is None:
        flags += [f"‹max_steps={steps}›"]
    elif share < 1 and settings.patience is None:
        flags += ["‹train.patience=3›"]
    yield Advice("memorised", sentence, " ".join(flags) or MORE_TEXT)


def narrower(model: ModelConfig) -> Iterator[int]:
    """Yield smaller values of d_model that fit the model's number of heads, such as 256, 128, 64 and 32 for 512."""
    unit = model.num_heads * (2 if model.positions == "rope" else 1)
    width = model.d_model // 2
    while width >= _NARROWEST:
        width -= width % unit
        if width >= _NARROWEST and not list(model.changed(d_model=width).misfits()):
            yield width
        width //= 2


def _vocabulary(start: Prepared) -> Iterator[Advice]:
    """Yield advice if token embedding and output layer have more than 75 % of the parameters."""
    model, tokenizer, parts = start.config.model, start.config.tokenizer, start.costs.parameters_by_part
    of_tokens = sum(parts.get(part, 0) for part in ("token embedding", "output layer"))
    share = of_tokens / start.costs.parameters
    if share <= _MOST_OF_MODEL:
        return
    most = (start.costs.parameters - of_tokens) * _ENOUGH_OF_MODEL / (1 - _ENOUGH_OF_MODEL)
    fitting = int(most / (of_tokens / start.vocab_size))
    fitting = 1 << max(_SMALLEST_VOCABULARY, fitting).bit_length() - 1  # a power of two
    times = start.num_training_tokens / start.vocab_size
    often = counted(round(times), "time") if times >= 0.95 else f"{times:.2g} times"
    takes = f"the vocabulary of {start.vocab_size:,} tokens takes {min(share, 0.99):.0%} of the parameters"
    sentence = f"{takes}, and an entry occurs {often} in the text on average"
    if tokenizer.kind in ("bpe", "tiktoken") and fitting < start.vocab_size:
        kind = "" if tokenizer.kind == "bpe" else "‹tokenizer.kind=bpe› "
        yield Advice("vocabulary", sentence, f"{kind}‹tokenizer.vocab_size={fitting}›")
    elif not model.tie_embeddings:
        yield Advice("vocabulary", sentence, "‹model.tie_embeddings=true›, which halves this share")


def _context(start: Prepared) -> Iterator[Advice]:
    """Yield advice if a context window has room for more than 4 documents of mean length, except for conversations."""
    model, settings = start.config.model, start.config.train
    # a separate validation text is not among the documents
    num_validation = 0 if start.config.data.validation_source else start.num_validation_tokens
    mean = (start.num_training_tokens + num_validation) / start.num_documents
    enough = fitting_context(model.context_length, mean)
    # questions and answers in a window do not see each other
    if start.config.data.loss is not None or enough == model.context_length:
        return
    flags = f"‹model.context_length={enough}›"
    # as many tokens a step as before
    flags += f" ‹train.batch_size={settings.batch_size * (model.context_length // enough)}›"
    reads = f"the model reads {model.context_length:,} tokens at once, but a document has {mean:.0f} on average"
    sentence = f"{reads}, so most of what it reads belongs to other documents"
    yield Advice("context", sentence, flags)


def _rate(start: Prepared) -> Iterator[Advice]:
    """Yield advice if the learning rate is above 10 times, or below 1/50 of, the usual learning rate."""
    rate = rate_of(start.config)
    times = rate.value / rate.usual
    if 1 / _FAR_BELOW <= times <= _FAR_ABOVE:
        return
    far = f"{times:,.0f} times what" if times > 1 else f"1/{1 / times:,.0f} of what"
    sentence = f"Muon's learning rate of {rate.value:g} is {far} is usual"
    if rate.key == "learning_rate":
        sentence = f"a learning rate of {rate.value:g} is {far} is usual at a width of {start.config.model.d_model}"
    yield Advice("rate", sentence, rate.flag(rate.usual))
