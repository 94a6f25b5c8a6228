"""What each layer would already predict."""
