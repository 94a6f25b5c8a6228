from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from gpt_cli.sampling.streaming import TextStream
from gpt_cli.text.tokenizers import ByteTokenizer


def test_a_character_of_three_tokens_arrives_whole() -> None:
    stream = TextStream(ByteTokenizer())
    assert [stream.feed(byte) for byte in "a今🙂".encode()] == ["a", "", "", "今", "", "", "", "🙂"]
    assert stream.finish() == ""


@given(st.lists(st.integers(0, 256)))
def test_any_bytes_stream_as_they_decode(ids: list[int]) -> None:
    tokenizer = ByteTokenizer()
    stream = TextStream(tokenizer)
    assert "".join([*(stream.feed(i) for i in ids), stream.finish()]) == tokenizer.decode(ids)


def streamed(text: str, *stops: str) -> tuple[list[str], bool]:
    stream = TextStream(ByteTokenizer(), stops)
    return [*(stream.feed(byte) for byte in text.encode()), stream.finish()], stream.stopped


def test_a_stop_is_found_across_tokens_and_its_start_is_held_back() -> None:
    assert streamed("ab END c", "END") == (["a", "b", " ", *[""] * 6], True)
    assert streamed("ab ENc", "END") == (["a", "b", " ", "", "", "ENc", ""], False)
    assert streamed("ab EN", "END") == (["a", "b", " ", "", "", "EN"], False)
    assert streamed("一二三四", "三四") == (["", "", "一", "", "", "二", *[""] * 7], True)


def test_where_tokens_end_does_not_change_where_a_text_stops() -> None:
    class Words(ByteTokenizer):
        """A tokenizer with one token, of five letters."""

        def decode_bytes(self, ids: Iterable[int]) -> bytes:
            return b"xabcy" * len([*ids])

    stream = TextStream(Words(), ["abc", "b"])
    assert (stream.feed(0), stream.stopped) == ("xa", True)
    assert "".join(streamed("xabcy", "abc", "b")[0]) == "xa"


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_streamed_text_ends_before_the_first_stop(text: str, stops: list[str]) -> None:
    pieces, stopped = streamed(text, *stops)
    # the stop that is complete first ends the text
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    assert stopped == bool(ends)
    if ends:
        length = max(len(stop) for stop in stops if text[: ends[0]].endswith(stop))
        assert "".join(pieces) == text[: ends[0] - length]
    else:
        assert "".join(pieces) == text
