# `make` lists the targets. Everything happens in .venv, which is made when it is missing.
PYTHON ?= python3
GPT := .venv/bin/gpt
# of bench-cuda
DEVICE ?= cuda
DATA ?= tinyshakespeare
OUT ?= bench-cuda.json
# one more than there are cores, as many tests wait for a process; more than four would take more memory than a laptop has
# files stay whole, and the groups of files of tests/conftest.py, so that each of their shared fixtures is made once
NUM_WORKERS = $(shell .venv/bin/python -c 'import os; print(min(4, 1 + len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0))))')
# bytecode is kept whatever the shell says: without it, each process that the tests start compiles the package anew
PYTEST = PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest --numprocesses $(NUM_WORKERS) --dist loadfile --no-loadscope-reorder
PIP := .venv/bin/python -m pip --disable-pip-version-check
# not with another Python: pip would refuse to install gpt into that environment, which would stay
NEW_VENV = $(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { echo "$(NEEDS)" >&2; exit 1; }; $(PYTHON) -m venv
# what `make demo` says, in the language that gpt would find too
ifneq ($(filter zh%,$(firstword $(GPT_LANGUAGE) $(LC_ALL) $(LC_MESSAGES) $(LANG))),)
NEEDS := gpt 需要 Python 3.11 到 3.14：make demo PYTHON=python3.12
INSTALLING := 正在创建 .venv，安装 gpt 和它用到的库；其中 PyTorch 最大，下载需要几分钟（接近 3 GB；没有 NVIDIA GPU 的机器只需要十分之一，见 README.zh-CN.md 的“安装”）
GO_ON := 请看 demo-attention.png。接下来，让当前终端能找到 gpt，再用自己的文本训练：
PROMPT := 今天
else
NEEDS := gpt needs Python 3.11 to 3.14: make demo PYTHON=python3.12
INSTALLING := creating .venv and installing gpt with its libraries; PyTorch is by far the largest download and takes minutes (nearly 3 GB; a machine without an NVIDIA GPU needs a tenth of it: README, Install)
GO_ON := Look at demo-attention.png. To go on, put gpt on the path of this shell, then train on your own text:
PROMPT := The value of
endif

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 12

# pip shows the progress of its downloads; nothing else it says matters unless it fails
# an environment that is there stays, one that was left half made for want of python3-venv is made again
.venv/installed: pyproject.toml
	@echo "$(INSTALLING)"
	@$(PIP) --version > /dev/null 2>&1 || { $(NEW_VENV) .venv; }
	$(PIP) install --editable .
	@touch $@

.venv/developing: pyproject.toml
	@echo "installing gpt, its libraries and the development tools; PyTorch is by far the largest download and takes minutes"
	@$(PIP) --version > /dev/null 2>&1 || { $(NEW_VENV) .venv; }
	$(PIP) install --editable '.[dev]'
	@touch .venv/installed $@

demo: .venv/installed  ## install, train for less than a minute, sample, and draw attention
	$(GPT) train --config tiny --out runs/demo --max-steps 300 --overwrite
	$(GPT) sample --run runs/demo --prompt 'The value of' --max-new-tokens 80 --seed 1
	$(GPT) attn-dump --run runs/demo --prompt 'The value of the expression is' --layers 1
	$(GPT) attn-dump --run runs/demo --prompt 'The value of the expression is' --out demo-attention.png
	@echo
	@echo "$(GO_ON)"
	@echo "  source .venv/bin/activate"
	@echo "  gpt train --data my.txt --out runs/mine"
	@echo "  gpt sample --run runs/mine --prompt '$(PROMPT)'"

test: .venv/developing  ## run the tests (minutes)
	$(PYTEST)

test-quick: .venv/developing  ## run the tests that need no browser and no forks
	$(PYTEST) --quick

notebooks: .venv/developing  ## write the lesson as notebooks again, from its pages
	.venv/bin/python docs/notebooks/make.py

screenshots: .venv/developing  ## write the pictures of README and the pages again, from runs that it trains (minutes)
	.venv/bin/python docs/pictures.py

test-long: .venv/developing  ## run the tests with every case of kills, power cuts, stops, signals and seeded faults, and every generated input of strangers
	$(PIP) install --quiet 'triton>=3.5,<4; platform_system == "Linux"'  # its interpreter runs the kernels on a CPU
	GPT_TEST_SCALE=1 $(PYTEST)

check: .venv/developing smoke  ## check format, style and types, run the tests, and run gpt without the development tools
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/pyright --pythonpath .venv/bin/python
	$(PYTEST)

smoke: .venv-smoke/installed  ## train, sample and dump in an environment with the runtime dependencies alone
	.venv-smoke/bin/gpt train --config smoke --out runs/smoke --overwrite --quiet
	.venv-smoke/bin/gpt sample --run runs/smoke --prompt 'The value of' --max-new-tokens 20 --seed 1 --quiet
	.venv-smoke/bin/gpt attn-dump --run runs/smoke --prompt 'The value' --out runs/smoke/attention.html --quiet

.venv-smoke/installed: pyproject.toml $(shell find gpt_cli configs -name '*.py' -o -name '*.yaml')
	@echo "installing gpt without the development tools into .venv-smoke"
	@.venv-smoke/bin/python -m pip --version > /dev/null 2>&1 || { $(NEW_VENV) .venv-smoke; }
	.venv-smoke/bin/python -m pip install --quiet --disable-pip-version-check .
	@touch $@

bench: .venv/installed  ## time training (also by two processes), sampling, attention and its forms, heads, patching, learning Shakespeare, large texts, refusals
	$(GPT) bench
	.venv/bin/python -m benchmarks.products
	.venv/bin/python -m benchmarks.llama_cpp
	.venv/bin/python -m benchmarks.processes
	.venv/bin/python -m benchmarks.forms
	.venv/bin/python -m benchmarks.attention
	.venv/bin/python -m benchmarks.heads
	.venv/bin/python -m benchmarks.patching
	.venv/bin/python -m benchmarks.model_page
	.venv/bin/python -m benchmarks.shakespeare
	.venv/bin/python -m benchmarks.corpus
	.venv/bin/python -m benchmarks.refusals

bench-cuda: .venv/installed  ## measure everything on a GPU in seven minutes: DEVICE, DATA (the file of tinyshakespeare), OUT (the figures)
	.venv/bin/python -m benchmarks.cuda --device $(DEVICE) --data $(DATA) --out $(OUT)

data: .venv/installed  ## fetch the corpora of the catalogue into data/
	$(GPT) data fetch all --out data

format: .venv/developing  ## format the code and fix what the linter can
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

zh: .venv/developing  ## print the lines that the Chinese catalogue lacks
	@PYTHONPATH=tests .venv/bin/python -m support.messages

settings: .venv/installed  ## write the tables of docs/settings.md and of its Chinese twin from the program
	for page in en:docs/settings.md zh:docs/settings.zh-CN.md; do \
		sed -i '/^<!-- `make settings`/q' $${page#*:} && echo >> $${page#*:} && \
		GPT_LANGUAGE=$${page%%:*} $(GPT) config settings >> $${page#*:} || exit 1; done

flags: .venv/installed  ## write the tables of docs/flags.md and of its Chinese twin from the program
	.venv/bin/python docs/flags.py

.PHONY: help demo test test-quick test-long notebooks screenshots check smoke bench bench-cuda data settings flags format zh
.DEFAULT_GOAL := help
