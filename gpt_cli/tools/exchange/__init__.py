"""Exchange with other programs: export runs for transformers, llama.cpp or a browser, and import models as runs."""
