import re
import textwrap
from pathlib import Path

import pytest
import yaml

from gpt_cli.config import Config
from gpt_cli.config.load import (
    build_config,
    config_differences,
    likeness,
    read_config,
    read_run_config,
    read_shipped,
    shipped_configs,
    validate,
    without_retired,
    without_untrusted_settings,
    write_config,
)
from gpt_cli.config.settings_reference import setting_schemas
from gpt_cli.config.strict_yaml import Document, parse
from gpt_cli.errors import UsageError

pytestmark = pytest.mark.slow


def read(text: str, *settings: str, **flags: object) -> Config:
    named = {key.replace("__", "."): ("flag", value) for key, value in flags.items()}
    return build_config(parse(text, "c.yaml"), "c.yaml", settings, named)


def problems(text: str, *settings: str) -> list[str]:
    with pytest.raises(UsageError) as raised:
        read(text, *settings)
    return raised.value.lines()


def test_a_number_of_more_digits_than_python_reads_is_out_of_range() -> None:
    seed = "_".join(["1" * 19] * 300)
    (problem,) = problems(f"train:\n  seed: {seed}\n")
    assert problem.startswith("error: c.yaml:2: train.seed: ")
    assert problem.endswith(" is not a whole number from 0 to 9,223,372,036,854,775,807")


def test_every_shipped_config_is_valid_and_small_is_the_default_model() -> None:
    for path in shipped_configs().values():
        read_config(str(path))
    model = read_config("small").model
    sizes = (model.context_length, model.d_model, model.num_heads, model.num_blocks, model.dropout)
    assert sizes == (128, 512, 8, 12, 0.1)
    assert read_config("small").model == Config().model


@pytest.mark.parametrize(
    ("written", "number"), [("3e-4", 3e-4), ("1e-3", 1e-3), (".5", 0.5), ("1.", 1.0), ("2", 2.0), ("'0.1'", 0.1)]
)
def test_numbers_are_read_by_their_declared_type(written: str, number: float) -> None:
    assert read(f"train:\n  learning_rate: {written}").train.learning_rate == number


def test_words_of_yaml_are_booleans_only_where_one_is_wanted() -> None:
    assert read("model:\n  bias: no\ndata:\n  source: no") == read("model:\n  bias: false\ndata:\n  source: 'no'")
    assert read("model:\n  tie_embeddings: on").model.tie_embeddings is True


def test_settings_are_written_over_the_file_and_flags_over_settings() -> None:
    config = read("train:\n  seed: 1\n  max_steps: 5", "train.seed=0", "data.source=[a, b]", train__max_steps=7)
    assert (config.train.seed, config.train.max_steps, config.data.source) == (0, 7, ["a", "b"])


def test_empty_files_and_sections_mean_the_defaults() -> None:
    assert read("") == read("model:\ntrain:\n") == Config()


MISTAKES = {
    "train:\n  learning_rat: 1": """
        error: c.yaml:2: there is no setting "train.learning_rat"
        hint: did you mean train.learning_rate?""",
    "d_model: 5": """
        error: c.yaml:1: there is no section "d_model"; the sections are model, data, tokenizer, train, inspect
        hint: did you mean model.d_model?""",
    "modle: {}": """
        error: c.yaml:1: there is no section "modle"; the sections are model, data, tokenizer, train, inspect
        hint: did you mean model?""",
    "模型: {}": """
        error: c.yaml:1: there is no section "模型"; the sections are model, data, tokenizer, train, inspect
        hint: did you mean model?""",
    "train: {model: 3}": """
        error: c.yaml:1: "model" is a section; a setting is one of its keys, such as model.context_length
        hint: `gpt config settings` lists every setting""",
    "train:\n  max_steps: many": """
        error: c.yaml:2: train.max_steps: "many" is neither a whole number from 1 to 2,147,483,647 nor null""",
    "train:\n  max_steps: 1e3": """
        error: c.yaml:2: train.max_steps: 1e3 must be written as a whole number, 1000""",
    "train:\n  log_every:": """
        error: c.yaml:2: train.log_every: an empty value is not a whole number from 1 to 2,147,483,647""",
    "train:\n  learning_rate: .inf": """
        error: c.yaml:2: train.learning_rate: ".inf" is not a number above 0 and at most 100""",
    'data:\n  source: "b\\0*"': """
        error: c.yaml:2: data.source: "b\\x00*" contains a NUL character, which no file name has""",
    "model:\n  dropout: 1": """
        error: c.yaml:2: model.dropout: 1 is not a number from 0 to 0.99""",
    "model:\n  bias: maybe": """
        error: c.yaml:2: model.bias: "maybe" is neither true nor false""",
    "model:\n  d_model: 100": """
        error: c.yaml:2: model.d_model: d_model 100 is not a multiple of num_heads 8; use num_heads 5 or 10, or d_model 96 or 104""",
    "model: {d_model: 6, num_heads: 2, positions: rope}": """
        error: c.yaml:1: model.positions: rope needs an even head size, but d_model 6 / num_heads 2 is 3
        hint: change model.d_model or model.num_heads, or use model.positions=learned""",
    "train:\n  micro_batch_size: 5": """
        error: c.yaml:2: train.micro_batch_size: micro_batch_size 5 does not divide batch_size 16, as 1, 2, 4, 8 or 16 would""",
    "train:\n  device: GPU": """
        error: c.yaml:2: train.device: "GPU" is not one of auto, cpu, cuda, cuda:N, mps, xpu
        hint: did you mean cuda?""",
    "train:\n  max_steps: １０\n  max_time: 20 秒": """
        error: c.yaml:2: train.max_steps: １０ is neither a whole number from 1 to 2,147,483,647 nor null
        error: c.yaml:3: train.max_time: "20 秒" is neither a duration, such as 90s or 1h30m, up to 10,000 hours nor null
        hint: train.max_steps: did you mean 10?""",
    "data:\n  source: {a: b}": """
        error: c.yaml:2: data.source: {'a': 'b'} is neither a source of text nor a list of sources""",
    "model: 3": """
        error: c.yaml:1: model is a section, so its settings belong below it""",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_names_its_line_the_value_and_what_is_allowed(text: str) -> None:
    assert problems(text) == textwrap.dedent(MISTAKES[text]).strip().splitlines()


def test_mistakes_have_the_order_of_the_file_whose_folder_may_have_a_colon_and_digits() -> None:
    document = parse("train:\n  lograte: 1\nmodel:\n  d_model: 0", "a:3b/c.yaml")
    with pytest.raises(UsageError) as raised:
        build_config(document, "a:3b/c.yaml")
    places = [problem.where for problem in (raised.value, *raised.value.others)]
    assert places == ["a:3b/c.yaml:2", "a:3b/c.yaml:4: model.d_model"]


def test_a_misfit_is_told_where_the_command_line_made_it() -> None:
    text = "model:\n  d_model: 100\n  num_heads: 4"
    assert problems(text, "model.num_heads=3") == [
        "error: --set: model.num_heads: d_model 100 is not a multiple of num_heads 3; use num_heads 2 or 4, or d_model "
        "99 or 102"
    ]
    assert problems("model: {d_model: 2, num_heads: 4}") == [
        "error: c.yaml:1: model.d_model: d_model 2 is not a multiple of num_heads 4; use num_heads 2, or d_model 4"
    ]


def test_misfits_are_told_beside_mistakes_but_not_about_mistaken_keys() -> None:
    text = "model: {d_model: 100, num_heads: 7, dropout: 2}\ntrain: {batch_size: 4, micro_batch_size: 3, max_steps: 0}"
    keys = [line.split(": ")[2] for line in problems(text)]
    assert sorted(keys) == ["model.d_model", "model.dropout", "train.max_steps", "train.micro_batch_size"]
    assert len(problems("model: {d_model: 100, num_heads: x}")) == 1


def test_a_config_names_no_more_texts_than_its_file_can_contain() -> None:
    names = [f"{i:050}" for i in range(10_000)]
    config = validate({"data": {"source": names[:5_000], "validation_source": names[5_000:]}}, "c")
    assert build_config(parse(write_config(config), "d"), "d") == config
    for too_many in ([*names, "a"], [*names[1:], "a" * 51], [*names[1:], "今" * 17]):
        with pytest.raises(UsageError, match="names at most 10,000 texts, whose names have at most 500,000 bytes"):
            validate({"data": {"source": too_many}}, "c")


def test_heads_of_keys_and_values_have_a_number_that_divides() -> None:
    for num_heads, expected in ((8, 2), (4, 1), (1, 1), (12, 3), (6, 1), (7, 1)):
        sizes = f"model.num_heads={num_heads}", f"model.d_model={num_heads}"
        assert read("", "model.attention=grouped_query", *sizes).model.key_value_heads == expected
    assert read("", "model.attention=grouped_query", "model.num_key_value_heads=4").model.key_value_heads == 4
    assert read("", "model.num_heads=4").model.key_value_heads == 4
    lines = problems("", "model.attention=grouped_query", "model.num_key_value_heads=3")
    assert lines == [
        "error: --set: model.num_key_value_heads: num_key_value_heads 3 does not divide num_heads 8, as 1, 2, 4 or 8 "
        "would"
    ]
    (unused,) = read("", "model.num_key_value_heads=2").unused()
    assert "model.num_key_value_heads" in unused
    assert "model.attention multi_head" in unused


def test_all_wrong_settings_are_told_at_once_as_they_were_typed() -> None:
    settings = "train.foo=1", "train.max_steps=x", "foo.bar=1", "seed=3", "model.bar", "model=3"
    lines = problems("train:\n  seed: x", *settings)
    assert [line for line in lines if line.startswith("error")] == [
        'error: c.yaml:2: train.seed: "x" is not a whole number from 0 to 9,223,372,036,854,775,807',
        'error: --set: train.max_steps: "x" is neither a whole number from 1 to 2,147,483,647 nor null',
        'error: --set: there is no setting "train.foo"',
        'error: --set: there is no section "foo"; the sections are model, data, tokenizer, train, inspect',
        'error: --set: "seed" is not a setting; the name of a setting has the form section.key',
        'error: --set: "model.bar" does not have the form section.key=value',
        'error: --set: "model" is a section; a setting is one of its keys, such as model.context_length',
    ]


def test_the_value_of_a_flag_is_reported_under_the_flag_that_was_typed() -> None:
    with pytest.raises(UsageError) as raised:
        build_config(Document({}), "c.yaml", flags={"data.source": ("data", "")})
    assert raised.value.lines() == ["error: --data: an empty value is neither a source of text nor a list of sources"]


@pytest.mark.parametrize("value", ["a\udcff.txt", ["b.txt", "a\udcff.txt"]])
def test_a_name_that_is_not_utf_8_is_refused_for_that_reason(value: object) -> None:
    with pytest.raises(UsageError) as raised:
        build_config(Document({}), "c.yaml", flags={"data.source": ("data", value)})
    assert raised.value.where == "‹data›"
    assert raised.value.sentence.endswith(" has a byte that is not UTF-8, but a config must be UTF-8")
    assert raised.value.hint == "rename the file, or name its directory"


def test_loggers_are_one_name_or_a_list_of_names() -> None:
    for written, names in (("wandb", ["wandb"]), ("[wandb, trackio, wandb]", ["wandb", "trackio"]), ("[]", [])):
        assert build_config(Document({}), "test", [f"train.log_to={written}"]).train.log_to == names
    allowed = setting_schemas()["train.log_to"]["anyOf"]
    assert [kind["type"] for kind in allowed] == ["string", "array"]
    with pytest.raises(UsageError, match='"mlflow" is not one of tensorboard, wandb, trackio, swanlab, a list of them'):
        build_config(Document({}), "test", ["train.log_to=mlflow"])


@pytest.mark.parametrize("setting", [r"\n\n", "\n\n"], ids=["as a shell passes it on", "as it is"])
def test_a_separator_is_read_with_its_escapes(setting: str) -> None:
    config = read("", f"data.separator={setting}")
    assert config.data.separator == "\n\n"
    assert r"  separator: \n\n" in write_config(config).splitlines()
    assert read(write_config(config)) == config
    assert list(config_differences(Config(), config)) == [("data.separator", "null", r"\n\n")]
    assert read('data: {separator: "\\n\\n"}').data.separator == "\n\n"
    assert read("data: {separator: '---'}", "data.separator=null").data.separator is None


@pytest.mark.parametrize("word", ["", "~", "null", "Null", "NULL"])
def test_a_flag_knows_every_null_of_a_file(word: str) -> None:
    assert read("", f"train.gradient_clip={word}") == read(f"train: {{gradient_clip: {word}}}")
    assert read("", f"train.gradient_clip={word}").train.gradient_clip is None


def test_a_config_in_the_home_folder_may_be_named_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.yaml").write_text("train: {seed: 7}")
    assert read_config("~/mine.yaml").train.seed == 7


def test_a_mistyped_key_of_every_kind_is_answered_with_the_right_one() -> None:
    for key in setting_schemas():
        section, name = key.split(".")
        value = getattr(getattr(Config(), section), name)
        fitting = "null" if value is None or value == [] else str(value).lower()
        if len(name) > 4:
            assert f"hint: did you mean {key}?" in problems("", f"{section}.{name[:-1]}x={fitting}"), key


def test_a_flag_and_its_setting_cannot_both_be_given() -> None:
    flags = {"train.seed": ("seed", 1), "train.max_steps": ("max_steps", None)}
    assert read_config("smoke", ["train.max_steps=5"], flags).train.max_steps == 5
    with pytest.raises(UsageError) as raised:
        read_config("smoke", ["train.seed=5"], flags)
    assert raised.value.lines() == [
        "error: --seed: --set train.seed and --seed cannot be combined; leave one of them out"
    ]


@pytest.mark.parametrize(
    ("text", "settings", "both"),
    [
        ("train: {max_steps: 5, max_time: 1m}", (), True),
        ("train: {max_steps: 5, max_time: 1m}", ("train.max_time=2m",), True),
        ("train: {max_steps: 5, max_time: null}", ("train.max_time=2m",), False),
        ("train: {max_steps: 5}", ("train.max_time=1m",), False),
        ("train: {max_time: 1m}", ("train.max_steps=5", "train.max_time=2m"), True),
        ("train: {max_time: 1m}", ("train.max_steps=5",), True),
        ("train: {max_time: 1m}", (), False),
    ],
)
def test_steps_and_a_time_in_one_place_mean_the_first_of_both(text: str, settings: tuple[str, ...], both: bool) -> None:
    train = read(text, *settings).train
    assert train.max_time is not None
    assert (train.max_steps is not None) == both


def test_retired_keys_load_with_what_they_meant(tmp_path: Path) -> None:
    """A time replaced the steps of earlier versions, unless stop_at said first; kept was the kind of an imported model."""
    file = tmp_path / "config.yaml"
    both = write_config(Config().changed(train={"max_time": 60.0}))
    for stop_at, steps in (("", None), ("  stop_at: null\n", None), ("  stop_at: first\n", 2000)):
        older = both.replace("  skip_bad:", "  max_expansion: 200\n  skip_bad:")
        file.write_text(older.replace("  optimizer:", f"{stop_at}  optimizer:"))
        assert read_run_config(file) == Config().changed(train={"max_time": 60.0, "max_steps": steps})
        assert validate(without_retired(yaml.safe_load(file.read_text()), whole=True), "") == read_run_config(file)
    file.write_text(both.replace("kind: bpe", "kind: kept"))
    assert read_run_config(file).train.max_steps == 2000
    assert read_run_config(file).tokenizer.kind == "imported"
    file.write_text(re.sub("  freeze: .*\n", "", both))  # before there was a limit of packed text, too
    assert read_run_config(file).train.max_steps is None
    (tmp_path / "checkpoints").mkdir()
    assert read_config(str(file)) == read_run_config(file), "--config means the same"
    for parallel in ("auto", "replicate", "shard"):  # which decided where weights were, not what they became
        file.write_text(both.replace("  log_every:", f"  parallel: {parallel}\n  log_every:"))
        assert read_run_config(file) == read_config(str(file)) == Config().changed(train={"max_time": 60.0})


def test_a_run_has_an_end() -> None:
    with pytest.raises(UsageError, match="max_steps or max_time ends a run"):
        read("train: {max_steps: null}")


def test_sizes_of_latent_attention_come_from_the_others() -> None:
    default = read("", "model.attention=latent").model
    assert (default.key_value_latent, default.query_latent_size) == (128, None)
    assert (default.rotated_size, default.query_size) == (0, 64)
    turned = read("", "model.attention=latent", "model.positions=rope").model
    assert (turned.rotated_size, turned.query_size, turned.cached_size) == (32, 96, 160)
    for head_size, expected in ((1, 2), (2, 2), (3, 2), (6, 2), (8, 4), (10, 4)):
        sizes = "model.num_heads=2", f"model.d_model={2 * head_size}"
        assert read("", "model.attention=latent", "model.positions=rope", *sizes).model.rotated_size == expected


def test_latent_attention_turns_pairs_and_any_head_may_be_odd() -> None:
    latent = ["model.attention=latent", "model.positions=rope"]
    for size, better in ((7, "6 or 8"), (1, "2")):
        lines = problems("", *latent, f"model.rotary_size={size}")
        assert lines == [f"error: --set: model.rotary_size: rope rotates pairs, so {size} must be even; use {better}"]
    assert read("", *latent, "model.num_heads=2", "model.d_model=6").model.query_size == 5


def test_latent_attention_has_no_biases_of_queries_keys_and_values() -> None:
    (line,) = problems("", "model.attention=latent", "model.qkv_bias=true")
    assert line.startswith("error: --set: model.qkv_bias: latent attention computes")
    assert read("", "model.attention=grouped_query", "model.qkv_bias=true").model.qkv_bias


def test_the_configs_of_the_forms_differ_in_their_form_alone() -> None:
    plain = read_config("multi-head")
    keys = {
        name: {key for key, *_ in config_differences(plain, read_config(name))}
        for name in ("grouped-query", "latent", "tiny")
    }
    assert keys == {
        "grouped-query": {"model.attention", "model.num_key_value_heads"},
        "latent": {"model.attention", "model.latent_size", "model.rotary_size"},
        "tiny": {"train.max_steps"},
    }


def test_keys_of_one_form_are_not_used_by_another() -> None:
    told = list(read("", "model.latent_size=8", "model.query_latent_size=8").unused())
    keys = "latent_size", "query_latent_size"
    assert told == [f"model.{key} is not used by model.attention multi_head" for key in keys]
    scaled = "model.positions=rope", "model.rope_original_length=64"
    assert list(read("", *scaled).unused()) == ["model.rope_original_length is not used by model.rope_scaling null"]
    assert not list(read("", *scaled, "model.rope_scaling=8", "model.rotary_size=8").unused())
    muon, ngrams = (
        ("train.muon_learning_rate=0.1", "train.optimizer=muon"),
        ("model.ngram_rows=9", "model.ngram_embedding=2"),
    )
    assert list(read("", muon[0], ngrams[0]).unused()) == [
        "model.ngram_rows is not used by model.ngram_embedding null",
        "train.muon_learning_rate is not used by train.optimizer adamw",
    ]
    assert not list(read("", *muon, *ngrams).unused())
    (told,) = read("", "model.attention=latent", "model.rotary_size=8", "model.latent_size=8").unused()
    assert told == "model.rotary_size is not used by model.positions learned"
    assert not list(read("", "model.attention=latent", "model.positions=rope", "model.rotary_size=8").unused())


def test_configs_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().train.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("1.1h", 3960), ("4.1m", 246), ("1h30m", 5400), ("1d2h3m4s", 93784)],
)
def test_a_duration_is_read_and_written_and_read_again(text: str, seconds: float, tmp_path: Path) -> None:
    config = read("", f"train.max_time={text}")
    assert config.train.max_time == seconds
    (tmp_path / "a.yaml").write_text(write_config(config))
    assert read_config(str(tmp_path / "a.yaml")) == config


@pytest.mark.parametrize("text", ["soon", "30m1h", "1h30", "5 m", "m"])
def test_other_text_is_not_a_duration(text: str) -> None:
    assert "is neither a duration" in problems("", f"train.max_time={text}")[0]


@pytest.mark.parametrize("value", ["0", "0s", "417d", "10000h1s"])
def test_a_duration_is_more_than_nothing_and_at_most_ten_thousand_hours(value: str) -> None:
    sentence = "is out of range; a duration is at least 1 ms and at most 10,000 hours"
    assert sentence in problems("", f"train.max_time={value}")[0]
    assert sentence in problems(f"train: {{max_time: {value}}}")[0]


def test_an_editor_accepts_durations_as_people_write_them() -> None:
    number, text = setting_schemas()["train.max_time"]["anyOf"][:2]
    assert number["type"] == "number"
    for duration in ("5m", "1h30m", "90"):
        assert re.fullmatch(text["pattern"], duration)
    for other in ("5 m", "", "m"):
        assert not re.fullmatch(text["pattern"], other)


def test_stdin_is_read_once() -> None:
    (line, _) = problems("data: {source: [a.txt, '-'], validation_source: '-'}")
    assert line.endswith("stdin can be read once, so it cannot be both the training text and the validation text")


def test_of_a_thousand_wrong_keys_fifty_are_named() -> None:
    """To find what each was meant to be took minutes."""
    found = problems("train:\n" + "".join(f"  k{i}: 1\n" for i in range(1_000)))
    assert len([line for line in found if "there is no setting" in line]) == 50
    assert "c.yaml: 950 more keys cannot be read" in found[50]


# --- what makes a config different from a shipped one

SHIPPED = read_shipped()


def test_a_run_is_compared_with_the_config_of_its_name() -> None:
    tiny = read_config("tiny", ["model.d_model=64", "train.learning_rate=3e-4"])
    assert likeness(tiny, "tiny") == ("tiny", {"model.d_model": "64", "train.learning_rate": "0.0003"})
    assert likeness(SHIPPED["smoke"], "tiny").shipped == "tiny"


def test_a_run_of_another_name_is_compared_with_the_nearest_config() -> None:
    for name in SHIPPED:
        assert likeness(read_config(name, ["train.seed=5"]), "mine") == (name, {"train.seed": "5"})


def test_of_two_that_are_equally_near_the_plain_one_is_named() -> None:
    between = read_config("tiny", ["train.max_steps=100"])  # tiny has 1,000 steps, and multi-head 400
    assert likeness(between, "mine") == ("tiny", {"train.max_steps": "100"})


def test_what_a_run_chose_for_auto_is_no_difference() -> None:
    resolved = SHIPPED["tiny"].changed(train={"device": "cpu", "dtype": "bfloat16", "compile": "off"})
    assert likeness(resolved, "tiny") == ("tiny", {})


# --- what a config may ask for that came with a model

# what leads beyond the model: it is read, runs, connects, or is this machine's
TAKEN = {
    "data": {"source", "validation_source", "skip_bad"},
    "train": {"device", "threads", "dtype", "compile", "graph", "sample_prompt", "log_to"},
}


def test_nothing_that_leads_beyond_the_model_is_kept() -> None:
    asked, default = Config(), Config()
    for section in ("data", "train"):
        part = getattr(asked, section)
        marked = part.model_copy(update={key: f"{section}.{key}" for key in type(part).model_fields})
        asked = asked.model_copy(update={section: marked})
    asked = asked.changed(model={"d_model": 8}, tokenizer={"kind": "char"}, inspect={"prompt": "a text"})
    kept = without_untrusted_settings(asked)
    for section, taken in TAKEN.items():
        for key in type(getattr(asked, section)).model_fields:
            named = getattr(default, section) if key in taken else getattr(asked, section)
            assert getattr(getattr(kept, section), key) == getattr(named, key), (
                f"{section}.{key}: a stranger's config may set it if LEARNING stands beside its type; "
                "else TAKEN of this test has it, because it leads beyond the model"
            )
    assert (kept.model, kept.tokenizer, kept.inspect) == (asked.model, asked.tokenizer, default.inspect)
