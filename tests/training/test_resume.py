from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.helpers import small_config
from support.runs import start

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.machine.devices import processor
from gpt_cli.config import Config
from gpt_cli.config.settings_reference import setting_schemas
from gpt_cli.errors import CheckpointError
from gpt_cli.training.resume import (
    FREE_KEYS,
    config_to_resume,
    environment_changes,
    other_text,
    resumed_environment,
)

RUN = RunFiles(Path("runs/mine"))
# what makes a run another one, beside all of the model and the tokenizer
FIXED = {
    *("data.text_field", "data.separator", "data.validation_fraction", "data.loss", "data.template"),
    *("train.batch_size", "train.optimizer", "train.learning_rate", "train.muon_learning_rate", "train.warmup_steps"),
    *("train.schedule", "train.weight_decay", "train.gradient_clip", "train.seed", "train.dtype"),
    *("train.rank", "train.freeze", "train.teacher_share", "train.num_models", "train.eval_tokens"),
    "train.ema_decay",
}


def refused(stored: Config, asked: Config, run: Config | None) -> list[str]:
    """Return the lines of the error about settings that may not change."""
    with pytest.raises(CheckpointError) as raised:
        config_to_resume(stored, asked, run, RUN)
    return raised.value.lines()


def test_of_every_setting_it_is_said_whether_it_may_change_on_resume() -> None:
    keys = {key for key in setting_schemas() if not key.startswith(("model.", "tokenizer."))}
    assert not keys ^ (FREE_KEYS | FIXED), (
        "write FREE beside the type of a setting that a run that continues may change; FIXED of this test has the "
        "others"
    )
    assert not FREE_KEYS & FIXED


def test_a_free_setting_changes_on_resume_and_auto_stays_what_it_was() -> None:
    stored, asked = small_config(), small_config("train.max_steps=99", "train.device=auto", "train.dtype=auto")
    kept = config_to_resume(stored, asked, stored, RUN)
    assert (kept.train.max_steps, kept.train.device, kept.train.dtype) == (99, "cpu", "float32")


@pytest.mark.parametrize("asked", ["auto", "off", "on"])
def test_a_checkpoint_by_itself_starts_no_compiler(asked: str) -> None:
    """A stranger's may have been put into a run; what that run chose is in its config.yaml."""
    stored, asks = small_config("train.compile=on", "train.device=cuda"), small_config(f"train.compile={asked}")
    run = small_config("train.compile=off", "train.device=cpu")
    asks = asks.changed(train={"device": "auto"})
    kept = config_to_resume(stored, asks, run, RUN)
    assert (kept.train.compile, kept.train.device) == ("off" if asked == "auto" else asked, "cpu")
    assert config_to_resume(stored, asks, None, RUN).train.compile == asked


def test_what_makes_a_continued_run_inexact_is_named(tmp_path: Path) -> None:
    run = start(tmp_path, small_config())
    stored = run.checkpoint(with_optimizer=True)
    assert environment_changes(stored, run.config) == []
    other = {**stored.progress.environment, "torch": "2.9.0", "threads": "96", "processor": "another"}
    stored = replace(stored, progress=replace(stored.progress, environment=other))
    assert environment_changes(stored, small_config("train.micro_batch_size=2")) == [
        f"torch 2.9.0 -> {torch.__version__}",
        f"threads 96 -> {torch.get_num_threads()}",
        f"processor another -> {processor()}",
        "micro_batch_size None -> 2",
    ]


def test_another_gpu_is_named_and_repeats_no_choice_of_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.training.resume.device_name", lambda device: "H200")
    stored, config = start(tmp_path, small_config()).checkpoint(with_optimizer=True), small_config("train.device=cuda")

    def resumed(**accelerator: str) -> tuple[list[str], str | None]:
        before = {**stored.progress.environment, "device": "cuda", "attention": "triton"} | accelerator
        then = replace(stored, progress=replace(stored.progress, environment=before))
        return environment_changes(then, config), resumed_environment(before, config).get("attention")

    assert resumed(accelerator="H200") == ([], "triton")
    assert resumed(accelerator="H100") == (["accelerator H100 -> H200"], None)
    assert resumed() == ([], None)  # of a version that did not store the name


def test_compiling_may_change_on_resume_and_is_reported(tmp_path: Path) -> None:
    stored = start(tmp_path, small_config("train.compile=off")).checkpoint(with_optimizer=True)
    asked = config_to_resume(stored.config, small_config("train.compile=on"), stored.config, RUN)
    assert asked.train.compile == "on"
    assert environment_changes(stored, asked) == ["compiled False -> True"]
    before = replace(stored, config=small_config())  # saved before `compile` was a setting
    assert environment_changes(before, small_config("train.compile=off")) == []


@pytest.mark.parametrize(
    ("settings", "sentence", "data"),
    [
        ([], '"python-docs" has changed since this run began, or an older gpt read it otherwise', "--data python-docs"),
        (["data.source=b c.txt"], '"b c.txt" is not the text that this run began with', "--data 'b c.txt'"),
        (["data.source=[a,b,c,d]"], '"a, b, c, d" is not the text that this run began with', "--data ..."),
    ],
)
def test_a_text_with_other_ids_is_refused_with_what_goes_on(
    settings: list[str], sentence: str, data: str, tmp_path: Path
) -> None:
    stored, now = start(tmp_path, small_config()).checkpoint(with_optimizer=True), small_config(*settings)
    assert other_text(stored, now, RUN).lines() == [
        f"error: --resume: {sentence}",
        "hint: put the old text back, name another copy of it with --data, or begin a new run with these weights: "
        f"gpt train --init-from runs/mine {data} --out runs/mine-2",
    ]


def test_texts_are_in_quotes_where_a_setting_may_not_change() -> None:
    assert refused(small_config("data.separator=。"), small_config(), None) == [
        'error: --resume: data.separator was "。" in this run and is null now, but it may not change',
        "hint: leave out what changes these settings (--config, --set, --seed, ...), or begin a new run with these "
        "weights: gpt train --init-from runs/mine --data python-docs --out runs/mine-2 ...",
    ]


def test_all_settings_that_may_not_change_are_named_and_with_another_model_no_weights_go_on() -> None:
    asked = small_config("model.num_heads=4", "model.bias=false", "train.seed=3")
    assert refused(small_config(), asked, None) == [
        "error: --resume: model.num_heads was 2 in this run and is 4 now, but it may not change",
        "error: --resume: model.bias was true in this run and is false now, but it may not change",
        "error: --resume: train.seed was 1337 in this run and is 3 now, but it may not change",
        "hint: leave out what changes these settings (--config, --set, --seed, ...), or start again with another --out",
    ]


@pytest.mark.parametrize(("run", "text"), [(None, "my.txt"), (small_config("data.source=moved.txt"), "moved.txt")])
def test_the_new_run_that_a_hint_begins_reads_the_text_of_the_old_one(run: Config | None, text: str) -> None:
    """Not that of a --config, which is often another."""
    *_, hint = refused(small_config("data.source=my.txt"), small_config("train.seed=2"), run)
    assert f"gpt train --init-from runs/mine --data {text} --out runs/mine-2 ..." in hint
