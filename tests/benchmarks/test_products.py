from benchmarks.products import compare_products, num_timed
from gpt_cli.config.load import read_config


def test_all_forms_are_timed_beside_plain_ones() -> None:
    counted: list[int] = []
    found = compare_products(read_config("smoke"), 1, counted.append)
    assert len(found) == num_timed()
    assert sum(counted) == 2 * num_timed()  # a round to warm up
    forms = [(each.dtype, each.form) for each in found if each.num_rows == 1]
    assert forms[:2] == [("float32", "F.linear"), ("float32", "packed")]
    assert all(each.ratio == 1 for each in found if each.form == "F.linear")
    for dtype in ("float32", "bfloat16"):  # of each dtype all products are chosen in some form
        assert sum(each.share_chosen for each in found if each.dtype == dtype) == 2
