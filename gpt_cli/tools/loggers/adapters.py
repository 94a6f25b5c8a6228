"""Adapters for the logging packages that `train.log_to` names, each imported only in its logger's process.

Each package works offline with files in the run directory, unless the user's environment variables say otherwise. gpt
gives packages no data about the machine, the code or other programs.
"""

import html
import importlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PROJECT = "small-gpt"


class Destination(NamedTuple):
    """Where a logger writes: its folder, and the run's id and name; `continued` if the logger already has this run."""

    folder: Path
    id: str
    name: str
    continued: bool


def _prefer(variables: Mapping[str, object]) -> None:
    """Set environment variables of this process, except those that the user has set."""
    for name, value in variables.items():
        os.environ.setdefault(name, str(value))


class TensorBoard:
    """Adapter that writes TensorBoard files without torch: scalars, hyperparameters, and samples and config as text."""

    def __init__(self, destination: Destination, config: dict[str, Any]):
        of = importlib.import_module
        self._summary = of("tensorboard.compat.proto.summary_pb2").Summary
        self._text = of("tensorboard.plugins.text.summary_v2").text_pb
        self._event = of("tensorboard.compat.proto.event_pb2").Event
        writer = of("tensorboard.summary.writer.event_file_writer").EventFileWriter
        self._writer = writer(str(destination.folder), flush_secs=1)
        settings = {f"{section}.{key}": v for section, keys in config.items() for key, v in keys.items()}
        plain = {key: v if isinstance(v, bool | int | float | str) else str(v) for key, v in settings.items()}
        self._add(0, of("tensorboard.plugins.hparams.summary_v2").hparams_pb(plain, trial_id=destination.id))
        self._add(0, self._text("config", _as_block(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))))

    def log(self, step: int, figures: Mapping[str, float], sample: str | None) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._add(step, self._summary(value=values))
        if sample is not None:
            self._add(step, self._text("sample", _as_block(sample)))

    def close(self) -> None:
        self._writer.close()

    def _add(self, step: int, summary: Any) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=summary))


class Wandb:
    """Adapter that logs to Weights & Biases; `wandb sync` uploads what was logged offline."""

    def __init__(self, destination: Destination, config: dict[str, Any]):
        _prefer(
            {
                "WANDB_MODE": "offline",
                "WANDB_DIR": destination.folder,
                "WANDB_PROJECT": PROJECT,
                "WANDB_NAME": destination.name,
                "WANDB_ERROR_REPORTING": "false",
                "WANDB_CONSOLE": "off",
                "WANDB_SILENT": "true",
                "WANDB_DISABLE_GIT": "true",
                "WANDB_DISABLE_CODE": "true",
            }
        )
        if os.environ["WANDB_MODE"] == "offline":  # else wandb's usual folders have the user's settings
            kinds = ("CACHE", "CONFIG", "DATA", "ARTIFACT")
            _prefer({f"WANDB_{kind}_DIR": destination.folder / kind.lower() for kind in kinds})
        self._package = importlib.import_module("wandb")
        quiet = self._package.Settings(
            x_disable_meta=True, x_disable_stats=True, x_disable_machine_info=True, x_save_requirements=False
        )
        resume = "allow" if os.environ["WANDB_MODE"] != "offline" else None  # offline, wandb warns of it
        self._run = self._package.init(id=destination.id, resume=resume, config=config, settings=quiet)

    def log(self, step: int, figures: Mapping[str, float], sample: str | None) -> None:
        text = {} if sample is None else {"sample": self._package.Html(f"<pre>{html.escape(sample)}</pre>")}
        self._run.log({**figures, **text}, step=step)

    def close(self) -> None:
        self._run.finish()
        self._package.teardown()


class Trackio:
    """Adapter that logs to Trackio, which writes a SQLite table; `trackio show` draws the runs."""

    def __init__(self, destination: Destination, config: dict[str, Any]):
        _prefer({"TRACKIO_DIR": destination.folder, "HF_HUB_DISABLE_TELEMETRY": 1, "GRADIO_ANALYTICS_ENABLED": False})
        if not {"TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"} & set(os.environ):
            _prefer({"HF_HUB_OFFLINE": 1})  # online, trackio asks the hub for the user's name
        self._package = importlib.import_module("trackio")
        self._package.init(
            project=PROJECT,
            name=f"{destination.name}-{destination.id}",  # a run is continued by its name
            config=config,
            resume="allow" if destination.continued else "never",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, step: int, figures: Mapping[str, float], sample: str | None) -> None:
        text = {} if sample is None else {"sample": self._package.Markdown(_as_block(sample))}
        self._package.log({**figures, **text}, step=step)

    def close(self) -> None:
        self._package.finish()


class SwanLab:
    """Adapter that logs to SwanLab; `swanlab sync` uploads what was logged offline."""

    def __init__(self, destination: Destination, config: dict[str, Any]):
        _prefer(
            {
                "SWANLAB_MODE": "offline",
                "SWANLAB_LOG_DIR": destination.folder,
                "SWANLAB_PROJ_NAME": PROJECT,
                "SWANLAB_EXP_NAME": destination.name,
            }
        )
        mode = os.environ["SWANLAB_MODE"]
        if mode == "offline":
            _prefer({"SWANLAB_ROOT": destination.folder / "root"})
        self._package = importlib.import_module("swanlab")
        probes = dict.fromkeys(("hardware", "runtime", "requirements", "conda", "git", "swanlab", "monitor"), False)
        quiet = self._package.Settings(interactive=False, probe=probes, terminal={"proxy_type": "none"})
        self._package.init(mode=mode, id=destination.id, resume="allow", config=config, settings=quiet)

    def log(self, step: int, figures: Mapping[str, float], sample: str | None) -> None:
        text = {} if sample is None else {"sample": self._package.Text(sample)}
        self._package.log({**figures, **text}, step=step)

    def close(self) -> None:
        self._package.finish()


def _as_block(text: str) -> str:
    """Indent a text as a Markdown code block, so that it is shown unchanged."""
    return "".join(f"    {line}\n" for line in text.splitlines())


# `log` takes the figures and the sampled text of a step, in rising steps; `close` writes or sends all
LOGGERS = {"tensorboard": TensorBoard, "wandb": Wandb, "trackio": Trackio, "swanlab": SwanLab}
