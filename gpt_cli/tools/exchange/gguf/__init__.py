"""Models as GGUF, the one file that llama.cpp and Ollama load."""
