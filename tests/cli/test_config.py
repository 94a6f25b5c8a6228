import json
from pathlib import Path

import yaml
from support.helpers import RunCommand

import gpt_cli
from gpt_cli.config.load import shipped_configs
from gpt_cli.config.settings_reference import setting_schemas


def test_check_accepts_a_config_and_names_what_has_no_effect(here: Path, run: RunCommand) -> None:
    Path("mine.yaml").write_text("tokenizer:\n  kind: char\n  vocab_size: 300\n  pattern: gpt2\n")
    checked = run("config", "check", "mine.yaml")
    assert (checked.code, checked.out) == (0, "mine.yaml: valid\n")
    assert checked.err.splitlines() == [
        "tokenizer.pattern is not used by tokenizer.kind char",
        "tokenizer.vocab_size is not used by tokenizer.kind char",
    ]
    by_shipped = ["config", "check", "tiny", "--set", "tokenizer.kind=char"]
    assert run(*by_shipped).err == "", "the user did not set the size of the vocabulary"
    assert "vocab_size is not used" in run(*by_shipped, "--set", "tokenizer.vocab_size=300").err
    assert json.loads(run("config", "check", "mine.yaml", "--json").out) == {
        "file": "mine.yaml",
        "valid": True,
        "errors": [],
    }


def test_check_of_a_bad_config_is_json_as_well(here: Path, run: RunCommand) -> None:
    Path("typo.yaml").write_text("model:\n  d_modle: 4\n  dropout: 2\n")
    outcome = run("config", "check", "typo.yaml", "--json", exits=2)
    assert json.loads(outcome.out) == {
        "file": "typo.yaml",
        "valid": False,
        "errors": [
            {
                "where": "typo.yaml:2",
                "sentence": 'there is no setting "model.d_modle"',
                "hint": "did you mean model.d_model?",
            },
            {
                "where": "typo.yaml:3: model.dropout",
                "sentence": "2 is not a number from 0 to 0.99",
                "hint": None,
            },
        ],
    }
    assert outcome.err.splitlines()[0] == 'error: typo.yaml:2: there is no setting "model.d_modle"'
    Path("folder").mkdir()
    assert run("config", "check", "folder").err.splitlines() == [
        'error: "folder": this is a directory, but a config is a .yaml file',
        f"hint: shipped configs: {', '.join(shipped_configs())}",
    ]
    Path("folder/mine.yaml").touch()
    assert run("config", "check", "folder").err.splitlines()[1] == "hint: folder/mine.yaml"
    Path("mine.txt").write_text("model:\n  d_model: 64\n")
    wrong = run("config", "check", "mine.txt", "--set", "model.d_modle=3")
    assert wrong.err.splitlines()[1] == "hint: did you mean model.d_model?", "not that a config is a .yaml file"
    missing = json.loads(run("config", "check", "smal", "--json").out)
    assert missing["errors"][0]["sentence"] == "there is no such config file"


def test_show_prints_every_setting_with_what_the_flags_changed(here: Path, run: RunCommand) -> None:
    Path("mine.yaml").write_text("model:\n  d_model: 64\n")
    shown = yaml.safe_load(run("config", "show", "mine.yaml", "--set", "train.seed=0").out)
    assert (shown["model"]["d_model"], shown["train"]["seed"], shown["model"]["num_blocks"]) == (64, 0, 12)
    assert json.loads(run("config", "show", "mine.yaml", "--json").out)["model"]["d_model"] == 64


def test_python_has_the_same_as_results(here: Path, run: RunCommand) -> None:
    Path("typo.yaml").write_text("model:\n  d_modle: 4\n")
    checked = gpt_cli.configs.check("typo.yaml")
    assert (checked.valid, checked.as_dict()) == (False, json.loads(run("config", "check", "typo.yaml", "--json").out))
    assert 'typo.yaml:2: there is no setting "model.d_modle"' in str(checked._repr_mimebundle_()["text/plain"])
    assert gpt_cli.configs.check("smoke").valid
    shown = gpt_cli.configs.show("smoke", settings=["train.seed=4"])
    assert (shown.config.train.seed, shown.as_dict()["train"]["seed"]) == (4, 4)
    assert gpt_cli.configs.settings().keys == setting_schemas()
    assert gpt_cli.configs.settings().as_text() + "\n" == run("config", "settings").out
    assert gpt_cli.configs.schema().as_text() + "\n" == run("config", "schema").out
