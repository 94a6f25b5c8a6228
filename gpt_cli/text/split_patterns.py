"""The allowed patterns for pre-tokenization, which cut a text into words before byte pairs are merged.

Some patterns would take the library exponential time or gigabytes, so gpt refuses a tokenizer file with a pattern that
is not listed here.
"""

# words with their leading space, up to three digits, runs of marks, white space
WORD_PATTERN = r" ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# as Radford et al. 2019 published it, which imported tokenizers have
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# of the library tiktoken since its version 0.9
R50K_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
O200K_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# the first two of those in tiktoken before 0.9, which many imported tokenizers have; Llama 3 has the second
OLD_R50K_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
OLD_CL100K_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# of Qwen 2: one digit at a time
QWEN2_PATTERN = OLD_CL100K_PATTERN.replace("{1,3}", "")
# the values of the setting tokenizer.pattern
BY_NAME = {"simple": WORD_PATTERN, "gpt2": GPT2_PATTERN, "llama3": OLD_CL100K_PATTERN, "qwen2": QWEN2_PATTERN}
PATTERNS = (*BY_NAME.values(), R50K_PATTERN, CL100K_PATTERN, O200K_PATTERN, OLD_R50K_PATTERN)


def as_oniguruma(pattern: str) -> str:
    """Return `pattern` with each possessive {1,3}+ as {1,3}, since `tokenizers` would read x{1,3}+ as (x{1,3})+."""
    # nothing follows the digits in the patterns of this module, so {1,3} and the possessive {1,3}+ match the same
    return pattern.replace("{1,3}+", "{1,3}")
