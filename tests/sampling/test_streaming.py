from hypothesis import given
from hypothesis import strategies as st

from gpt_cli.sampling.streaming import TextStream, printable
from gpt_cli.text.tokenizer import ByteTokenizer


def test_a_character_of_three_tokens_arrives_whole() -> None:
    stream = TextStream(ByteTokenizer())
    assert [stream.feed(byte) for byte in "a今🙂".encode()] == ["a", "", "", "今", "", "", "", "🙂"]
    assert stream.finish() == ""


@given(st.text())
def test_streamed_text_is_the_text(text: str) -> None:
    stream = TextStream(ByteTokenizer())
    assert "".join([*(stream.feed(byte) for byte in text.encode()), stream.finish()]) == text


@given(st.lists(st.integers(0, 256)))
def test_any_bytes_stream_as_they_decode(ids: list[int]) -> None:
    tokenizer = ByteTokenizer()
    stream = TextStream(tokenizer)
    assert "".join([*(stream.feed(i) for i in ids), stream.finish()]) == tokenizer.decode(ids)


def test_control_sequences_are_escaped_for_a_terminal() -> None:
    assert printable("a\x1b[2J\x07\r\n\t今\x9b") == "a\\x1b[2J\\x07\\x0d\n\t今\\x9b"
