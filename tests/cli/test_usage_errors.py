"""Flags of other programs, and mistyped ones: each is answered with a line that works when pasted."""

import re
import shlex
from pathlib import Path

import pytest
from support.helpers import RunCommand

from gpt_cli.cli.app import build
from gpt_cli.common.language import chinese
from gpt_cli.common.spelling import as_flags
from gpt_cli.config.load import build_config
from gpt_cli.config.request import refused
from gpt_cli.config.strict_yaml import Document
from gpt_cli.config.suggest import Meaning, _elsewhere

GPT = build()
# nanoGPT, litgpt, the Trainer of transformers, Lightning, axolotl, llama.cpp, mlx-lm: what is typed | what is meant
ELSEWHERE_TYPED = r"""
train --gradient_accumulation_steps 4 | a step has train.batch_size sequences and computes train.micro_batch_size at once: --set train.batch_size=32 --set train.micro_batch_size=8
train --logger tensorboard | --set train.log_to=tensorboard
train --model gpt2 | gpt import gpt2
train --model tiny | --config tiny
train --model_name_or_path runs/smoke | --init-from runs/smoke
sample --model smoke | --run smoke
sample --do_sample | leave it out; gpt does that by itself
sample --do_sample False | --greedy
train --wandb_log=False | leave it out
train --wandb_project mine | --set train.log_to=wandb
train --lora | --set train.rank=8
train --fsdp full_shard | leave it out; gpt has nothing like it
train --lora_r 16 | --set train.rank=16
train --bf16 True | --dtype bfloat16
train --precision bf16-mixed | --dtype bfloat16
train --continue | --resume
sample --out_dir runs/smoke | --run runs/smoke
train --out_dir out | --out out
sample -n 128 | --max-new-tokens 128
sample -ngl 99 | --device cuda
sample -c 2048 | leave it out; a model sees as many tokens as it was trained for
train -c 512 | --set model.context_length=512
train -c tiny | --config tiny
sample -t 8 | --threads 8
sample -t 0.5 | --temperature 0.5
train --num_train_epochs 3 | set the length of a training with --max-steps 1000 or --max-time 5m; gpt does not count epochs
train --lr_scheduler_type cosine | --set train.schedule=cosine
train --lr_scheduler_type constant | --set train.schedule=VALUE
train --warmup_ratio 0.1 | --set train.warmup_steps=100
train --eval.interval 50 | --set train.eval_every=50
train --train.batch_size 8 | --set train.batch_size=8
train --devices 2 | --processes 2
train --devices auto | --processes N
train --optim adamw_torch | --set train.optimizer=adamw
train --eval_only | gpt eval
train --torch_compile | --compile on
train --tokenizer o200k_base | --set tokenizer.kind=tiktoken --set tokenizer.name=o200k_base
heads --heds 0 | --heads 0
train --max_speed 3 | NOTHING
"""
# what people type first, and what a Chinese keyboard writes
MISTYPED = r"""
train --config tiny --data my.txt --lr 1e-3 | --set train.learning_rate=1e-3
train --lr | --set train.learning_rate=VALUE
train -lr 3e-4 | --set train.learning_rate=3e-4
train --learning-rat 1e-3 | --set train.learning_rate=1e-3
train --tokenizer char | --set tokenizer.kind=char
train --steps 300 | --max-steps 300
bench --layers 2 | --set model.num_blocks=2
report --run runs/tiny | gpt report runs/tiny
train --run runs/tiny | --out runs/tiny
sample --ckpt | --run PATH
sample -p 'The value' | --prompt 'The value'
sample -p="The value" | --prompt 'The value'
sample --lr 1 | NOTHING
runs rm smoke -y | --yes
train my.txt | --data my.txt
train short.txt tiny | --data short.txt --config tiny
train lunyu | --data lunyu
train mine.yaml | --config mine.yaml
train --resume smoke | --out runs/smoke
train runs/smoke | --out runs/smoke --resume
train runs/smoke --data short.txt | --init-from runs/smoke
train runs/smoke/checkpoints/best.safetensors | --init-from runs/smoke/checkpoints/best.safetensors
train --config tiny small | NOTHING
sample The value of | --prompt 'The value of'
sample smoke "It's" | --run smoke --prompt 'It'"'"'s'
eval short.txt | --data short.txt
eval runs/smoke/checkpoints/best.safetensors | --run runs/smoke/checkpoints/best.safetensors
eval --run=smoke b c | --run b --run c
train --config tiny --set a.b=1 c.d=2 | --set c.d=2
eval --stride 4 b | NOTHING
train —config tiny | --config tiny
train --config tiny －－max-steps=3 | --max-steps=3
train --config＝tiny | --config=tiny
train --max_steps：3 | --max_steps=3
sample --tempature 1 | --temperature 1
sample --prompt a=b c | put quotes around a text with spaces: --prompt 'a=b c'
train --config tiny --set model.d_model= 128 | write no spaces around the equals sign: --set model.d_model=128
train --config tiny --set model.d_model 128 | write no spaces around the equals sign: --set model.d_model=128
"""


@pytest.mark.parametrize("line", (ELSEWHERE_TYPED + MISTYPED.lstrip()).strip().splitlines())
def test_a_flag_of_another_program_or_a_mistyped_one_leads_to_ours(line: str, smoke_run: Path, run: RunCommand) -> None:
    Path("short.txt").write_text("short")
    typed, _, meant = line.partition(" | ")
    command, *_ = words = shlex.split(typed)
    hint = f"did you mean {meant}?" if meant.startswith(("--", "gpt ")) else meant
    nothing = f"gpt {command} --help lists the flags"
    assert run(*words, exits=2).err.splitlines()[1:] == [f"hint: {nothing if meant == 'NOTHING' else hint}"]


@pytest.mark.parametrize("line", ELSEWHERE_TYPED.strip().splitlines())
def test_what_stands_for_a_flag_of_another_program_can_be_typed(line: str) -> None:
    typed, _, meant = line.partition(" | ")
    if meant.startswith("gpt ") or re.search(r"\b(VALUE|N)\b", meant):
        return
    words = shlex.split(" ".join(re.findall(r"--[a-z-]+(?: [\w.=/-]*\w)?", meant)))
    found = GPT.commands[typed.split()[0]]
    given, rest, _ = found.make_parser(found.make_context(found.name, [], resilient_parsing=True)).parse_args(words)
    assert rest == []
    assert refused(found.callback.request, given) == []
    build_config(Document({}), "", given.get("settings", ()), to_choose=True)


def test_all_unknown_flags_of_a_line_and_all_wrong_values_are_reported_at_once(run: RunCommand) -> None:
    line = "train --n_layer 4 --n_head=2 --dropout .1 --max-steps 0 --dtype fp16 --colour --out x"
    outcome = run(*shlex.split(line))
    assert (outcome.code, outcome.err.splitlines()) == (
        2,
        [
            'error: gpt train: there is no flag "--n_layer"',
            'error: gpt train: there is no flag "--n_head"',
            'error: gpt train: there is no flag "--dropout"',
            'error: gpt train: there is no flag "--colour"',
            'error: --dtype: "fp16" is not one of auto, float32, bfloat16',
            'error: --max-steps: "0" is not a whole number from 1 to 2,147,483,647',
            "hint: --n_layer: did you mean --set model.num_blocks=4?",
            "hint: --n_head: did you mean --set model.num_heads=2?",
            "hint: --dropout: did you mean --set model.dropout=.1?",
            "hint: --colour: gpt train --help lists the flags",
            "hint: --dtype: did you mean --dtype bfloat16?",
        ],
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("prepare texts/novel.txt", "gpt data prepare"),
        ("chat", "gpt sample --chat"),
        ("训练", "gpt train"),
        ("download", "gpt data fetch"),
        ("convert_hf", "gpt import"),
        ("attention", "gpt attn-dump"),
        ("version", "gpt --version"),
        ("serve", None),
    ],
)
def test_a_command_of_another_program_leads_to_ours(typed: str, meant: str | None, run: RunCommand) -> None:
    hint = f"did you mean {meant}?" if meant else "gpt --help lists the commands"
    assert run(*typed.split()).err.splitlines()[-1] == f"hint: {hint}"


def test_the_table_names_commands_and_settings_that_exist() -> None:
    flags = {flag for command in GPT.commands.values() for one in command.params for flag in one.opts}
    fields = {one.name for command in GPT.commands.values() for one in command.params}
    names, commands = _elsewhere()["names"], _elsewhere()["commands"]
    for line in commands:
        words = line.split()[1:]
        assert words[0] in {*GPT.commands, "--version"}
        assert {word for word in words if word.startswith("--")} <= flags | {"--version"}
    for ours in (each for row in names for each in row.split(" | ")):
        meaning = Meaning.of(ours)
        assert meaning.fields or ours.startswith("gpt ") or chinese().find(as_flags(ours)), ours
        for name, value in meaning.fields:
            assert "." in name or name in {*fields, "version", "yes"}, ours
            if "." in name:
                build_config(Document({}), "", [] if value == "{}" else [f"{name}={value}"], to_choose=True)
    theirs = " ".join(names.values()).split()
    assert len(theirs) == len({*theirs}), "a name stands in one row"
