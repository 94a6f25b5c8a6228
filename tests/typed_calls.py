"""What a type checker says of our functions: `make check` fails where a line with `ignore` is right, or another is wrong."""

# pyright: reportUnnecessaryTypeIgnoreComment=true
# ruff: noqa: B018
from __future__ import annotations

from pathlib import Path

import gpt_cli
from gpt_cli.training.events import Evaluated

gpt_cli.sample("The ", temperature=0.5, run="runs/x", checkpoint=500, stop="a")
gpt_cli.sample(prompt="The ", run=Path("runs/x"), prompt_file=None)
gpt_cli.sample("The ", temprature=1)  # pyright: ignore
gpt_cli.sample("The ", run=3)  # pyright: ignore
gpt_cli.sample("The ", "runs/x")  # pyright: ignore
gpt_cli.sample("The ", prompt="The ")  # pyright: ignore
gpt_cli.attention("The ", layers=[1], heads=0, stage="queries", out=Path("x.npz"))
gpt_cli.attention("The ", stage="query")  # pyright: ignore
gpt_cli.explain("The ", query=3, out="x.png")
gpt_cli.evaluate(["a.txt", Path("b.txt")], run=["runs/x", Path("runs/y")])
gpt_cli.evaluate([3])  # pyright: ignore
gpt_cli.info(Path("runs/x")).costs.parameters
gpt_cli.info("runs/x").cost  # pyright: ignore
gpt_cli.bench("smoke", rounds=1)
gpt_cli.bench(None)  # pyright: ignore
gpt_cli.runs(Path("runs"), sort="loss")
gpt_cli.report(["x", Path("y")], out="x.html")
gpt_cli.remove_runs(Path("runs/x"), yes=True)
gpt_cli.remove_runs()  # pyright: ignore
gpt_cli.sweep(Path("x.yaml"), out="x", max_time="5m")
gpt_cli.sweep("x.yaml").means
gpt_cli.export_model("x.html", run="runs/x", format="html")
gpt_cli.export_model("x", format="htm")  # pyright: ignore
gpt_cli.import_model(Path("x"), out="runs/x")
gpt_cli.import_model(out="runs/x")  # pyright: ignore
gpt_cli.tokens("The ", run=Path("runs/x"))
gpt_cli.heads("The ", data="a.txt", query=-1, layers="0-3")
gpt_cli.data.list()
gpt_cli.data.list(True)  # pyright: ignore
gpt_cli.data.fetch("all", out="texts")
gpt_cli.data.stats("a.txt", config=Path("c.yaml"), settings=["data.separator=x"])
gpt_cli.data.prepare(["a.txt", Path("b.txt")], config="tiny")
gpt_cli.configs.check(Path("c.yaml"))

model = gpt_cli.load(Path("runs/x"), checkpoint=500)
gpt_cli.load(3)  # pyright: ignore
gpt_cli.sample("The ", run=model)
gpt_cli.evaluate(run=model)
gpt_cli.evaluate(run=[model])  # pyright: ignore
gpt_cli.info(model)
model.sample("The ", temperature=0.5)
model.sample("The ", temprature=0.5)  # pyright: ignore
model.export_model(Path("x"))

config = gpt_cli.configs.show("smoke").config
training = gpt_cli.train(config, data=["a.txt", Path("b.txt")], out=Path("runs/x"), max_time="5m")
for report in training:
    report.score  # pyright: ignore
    if isinstance(report, Evaluated):
        report.score.loss
training.finish().as_dict()["validation_loss"]
next(training).as_dict()  # pyright: ignore
gpt_cli.train("smoke", out=3)  # pyright: ignore
gpt_cli.train("smoke", steps=3)  # pyright: ignore
