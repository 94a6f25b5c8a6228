"""Export trained models for transformers, llama.cpp or a browser, and import published models as runs."""
