"""Limits on files and flags that may come from strangers.

Each limit bounds the memory or the time that an input can cost. Input beyond a limit is refused with a sentence that
names the limit; docs/reliability.md lists the main limits.
"""

# configs and sweeps
CONFIG_BYTES = 1_000_000
CONFIG_LEVELS = 4  # of nesting
CONFIG_NODES = 20_000  # keys, values, lists and sections; each takes 20 us
SOURCES = 10_000  # names of texts in a config, which must fit in the one that a run keeps
SOURCE_BYTES = 500_000  # of these names together
CONFIG_PROBLEMS = 50  # wrong keys that errors name; a last error counts the others
SWEEP_POINTS = 1000  # trainings of a sweep
SWEEP_RECORD_BYTES = 10_000_000

# texts and prompts
LINE_CHARACTERS = 2**28  # of a line of JSON, which must fit in memory
ROW_CHARACTERS, HEADER_CHARACTERS = 2**26, 2**20  # of a row of .csv, whose cells take several times as much memory
# how many times its size compressed text may expand: prose expands 3 to 5 times, logs up to 100, a repeated line more
EXPANSION = 200
EXPANSION_FROM = 2**26  # bytes that compressed text may expand to in any case
ARCHIVE_FILES = 1_000_000
# of a document that pandoc or PDFium converts: its text, the memory and the time that this may take
DOCUMENT_BYTES, DOCUMENT_MEMORY, DOCUMENT_SECONDS = 2**28, "2g", 300
DIRECTORY_LEVELS = 250  # of directories with texts
ZSTD_WINDOW = 2**27  # bytes of the window of a .zst file
DOWNLOAD_BYTES = 200_000_000  # of a corpus of the catalogue
STDIN_MEMORY = 2**26  # bytes of a text from stdin; what is longer goes to a temporary file
STDIN_BYTES = 2**34  # of a text from stdin at most, which may have no end
PROMPT_BYTES = 10_000_000
SAMPLING_BYTES = 2**31  # of memory that prompts of one batch take; the others wait for the next

# checkpoints
CHECKPOINT_HEADER_BYTES = 64_000_000  # a published vocabulary takes a few million

# files of JSON: headers, configs, tokenizers
# commas, opening brackets, and braces, which count as eight; 200,000 tokens with their merges have 800,000
JSON_PARTS = 2**22

# what a training can reach; larger numbers in the files of a run are damage
STEPS = 2**31 - 1
SECONDS = 1e9  # 31 years, beyond which a step would not move the clock
TRAINING_TOKENS = 2**53
FIGURE = 1e100  # losses, norms, rates

# other files of a run
OUTCOME_BYTES = 1_000_000
LOG_BYTES = 2**30
METRICS_LINE = 2**16  # bytes; a line of metrics has a few hundred
SNAPSHOT_BYTES = 2**31  # of attention

# directories of transformers
# headers and indexes of the largest GPT-2 take 100,000 bytes, those of 1,024 blocks 2 million
FOREIGN_HEADER_BYTES = 2**22
FOREIGN_CONFIG_BYTES = 2**20
FOREIGN_FILES = 1000  # with weights
# the metadata, tokenizer included, and the offsets of all tensors in a GGUF file; those of Llama 3 take 8 million
GGUF_HEADER_BYTES = 2**28
GGUF_TEXT_BYTES = 2**26  # of one text there
GGUF_ENTRIES = 2**16  # keys, and as many tensors
# values, elements of lists included, 60 bytes each in memory; 260,000 tokens with types, scores, merges: 1.3 million
GGUF_ELEMENTS = 2**22
TOKENIZER_BYTES = 2**26  # 200,000 tokens take 30 million
# sum of the squared lengths of all tokens, the cost of checking the merges of an export of ours; GPT-2: 3 million
TOKENIZER_WORK = 40_000_000
TOKENIZER_IDS = 2**20  # beyond the largest id; Gemma has 262,144
TOKENIZER_ADDED = 2**14  # tokens beside the vocabulary; Gemma has 6,400
TOKENIZER_NAME = 2**10  # characters of a token; the longest published one has a few hundred
TOKENIZER_STEPS = 16  # of each part of a pipeline

# attention
HEADS_WINDOW = 1024  # tokens of a window, and of the repeated tokens for induction, in `gpt heads`
HEADS_TOKENS = 16_384  # of the text that `gpt heads` reads, unless --max-tokens says more

# the machine
ADDRESS_SPACE = 2**28  # bytes that ulimit -v must allow; numpy takes most of them
TORCH_ADDRESS_SPACE = 2**30  # bytes for what needs torch, which takes 700 MB of them
