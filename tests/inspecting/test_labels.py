from gpt_cli.inspecting.labels import label_of


def test_labels_show_what_cannot_be_seen() -> None:
    labels = [label_of(token) for token in (" the", "\n", "  ", "\t", "", "a\x07", "abcdefghijklmnop", " a\n", "\r")]
    assert labels == [" the", "↵", "␣␣", "⇥", "∅", "a\\x07", "abcdefghijk…", " a↵", "\\x0d"]
