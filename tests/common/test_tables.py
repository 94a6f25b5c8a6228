from gpt_cli.common.tables import narrow_table, table


def test_a_table_without_rows_is_an_empty_text() -> None:
    assert table([]) == narrow_table([], 80, ()) == ""


def test_columns_are_aligned_by_the_cells_that_characters_take() -> None:
    assert table([("token", "id"), ("中文", "7")]) == "token  id\n中文   7"
