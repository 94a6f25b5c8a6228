"""Export and import of GGUF, the single-file format of llama.cpp and Ollama."""
