"""Lines that the code puts together of several texts are whole sentences in Chinese."""

from __future__ import annotations

import re

import pytest
from support.documents import CHINESE
from support.messages import PACKAGE

from gpt_cli.language import chinese
from gpt_cli.model.costs import _PARTS


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "device      cpu, float32, 2 processes with 1 thread each, torch 2.13.0",
            "设备        cpu，float32，2 个进程，每个 1 个线程，torch 2.13.0",
        ),
        (
            "parameters  18,000: token embedding 16,384, norms 320",
            "参数量      18,000：token 嵌入 16,384，归一化层 320",
        ),
        (
            "step 30/60: loss 5.3274, best validation 5.393, 10,675 tokens/s, 1.2 s left",
            "第 30/60 步：损失 5.3274，最低验证损失 5.393，10,675 token/s，剩余 1.2 秒",
        ),
        (
            "step 30: loss 5.3274, 10,675 tokens/s, 3 min 20 s left",
            "第 30 步：损失 5.3274，10,675 token/s，剩余 3 分 20 秒",
        ),
        ("loss 5.327, 9 tokens/s, 1.2 s left", "损失 5.327，9 token/s，剩余 1.2 秒"),
        (
            "step 7, loss 5.327, best 5.1, 9 tokens/s, 1.2 s left",
            "第 7 步，损失 5.327，最低 5.1，9 token/s，剩余 1.2 秒",
        ),
        (
            "step 40: validation loss 3.2 nats/token, 4.8 bits/byte, worse by 0.01 than at step 30",
            "第 40 步：验证损失 3.2 nat/token，4.8 bit/byte，比第 30 步高 0.01",
        ),
        (
            "stopped by SIGINT at step 7, which is saved; resume: gpt train --out runs/a --resume",
            "收到 SIGINT，停在第 7 步，已保存；接着训练：gpt train --out runs/a --resume",
        ),
        (
            "ended by a second signal, SIGINT, without saving the last steps; resume: gpt train --out a --resume",
            "第二次收到信号（SIGINT），立即结束，最后几步没有保存；接着训练：gpt train --out a --resume",
        ),
        (
            "ended by a second signal, SIGINT, after all was saved",
            "第二次收到信号（SIGINT），立即结束；已全部保存",
        ),
        ("tokenizing: 1.2 of 4.0 MB, 300.0 kB/s, 9.3 s left", "分词：1.2/4.0 MB，每秒 300.0 kB，剩余 9.3 秒"),
        ("evaluating: 3,000 of 4,000 tokens, 2 min 3 s left", "评估：3,000/4,000 个 token，剩余 2 分 3 秒"),
        ("training: 3 of 40 steps, 20 s", "训练：3/40 步，已用 20 秒"),
        ("computing attention: 12 s", "计算注意力：已用 12 秒"),
        ('"9" is not allowed; use a whole number from 1 to 5', '"9" 无效；请用整数（1 到 5）'),
        ("2 runs at once, each with 1 thread and a GPU", "同时训练 2 个，每个用 1 个线程和一块 GPU"),
        ("wrote a.html: 31 steps, 2 layers, 1 head, 24 tokens", "已写入 a.html：31 步，2 层，1 个头，24 个 token"),
        (
            "8 heads on 40 tokens take about 3.0 GB of memory, and 1.0 GB are free",
            "8 个头、40 个 token 约需 3.0 GB 内存，现在只有 1.0 GB 空闲",
        ),
        (
            "it does not go with a prompt, which is the whole text; leave one of them out",
            "不能同时用 --prompt（它就是全部文本）；请去掉其中一个",
        ),
    ],
)
def test_a_line_of_several_texts_is_said_as_one_sentence(line: str, said: str) -> None:
    assert chinese().find(line) == said


@pytest.mark.parametrize("part", _PARTS.values())
def test_every_part_of_a_model_has_a_name(part: str) -> None:
    assert chinese().find(f"{part} 1,024")


@pytest.mark.parametrize("other", ["惊奇度", "意外程度", "抽样", "名称", "即 stdin"])
def test_each_thing_has_one_word(other: str) -> None:
    """What the glossary at the top of cli.toml calls otherwise is nowhere: messages, pages, documents."""
    texts = {"messages": "\n".join(chinese().pairs.values())}
    texts |= {page.name: page.read_text("utf-8") for page in (*CHINESE, *(PACKAGE / "pages").rglob("*.js"))}
    assert not [name for name, text in texts.items() if other in text]


def test_marks_between_chinese_words_are_full_width() -> None:
    narrow = re.compile("[\u4e00-\u9fff][,;?!]( |[\u4e00-\u9fff]|$)")
    assert not [said for said in chinese().pairs.values() if narrow.search(said)]
