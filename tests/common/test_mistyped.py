from gpt_cli.common.mistyped import full_width, nearest


def test_a_dash_is_no_full_width_character() -> None:
    assert full_width("-–data") == '"–" in "-–data" is a dash; type the hyphen "-"'
    assert full_width("０．８") == '"０" in "０．８" is a full-width character; type "0"'
    assert full_width("--data") is None


def test_the_nearest_name_is_like_it_and_may_have_the_value() -> None:
    assert nearest("temprature", ["temperature", "top_k"]) == "temperature"
    assert nearest("论于", ["论语", "唐诗"]) == "论语"
    assert nearest("nope", ["smoke", "novel"]) is None
    assert nearest("log_tp", ["log_to", "stop"], lambda name: name == "stop") is None
    assert nearest("logto", ["log_to", "stop"], lambda name: name == "stop") == "log_to"
