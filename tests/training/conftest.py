import pytest

from gpt_cli.training import evaluate_and_log


@pytest.fixture(autouse=True)
def _short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 tokens, samples would take longer than the steps."""
    monkeypatch.setattr(evaluate_and_log, "SAMPLE_NEW_TOKENS", 8)
