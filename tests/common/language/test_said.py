"""Lines that the code puts together of several texts are whole sentences in Chinese."""

import re

import pytest
from support.documents import CHINESE
from support.package import PACKAGE

from gpt_cli.common.language import chinese
from gpt_cli.errors import DataError, GptError, UsageError
from gpt_cli.model.costs import _PARTS

# each line as it is written, and below it what is said in Chinese
SAID = r"""
device      cpu, float32, 2 processes with 1 thread each, torch 2.13.0
设备        cpu，float32，2 个进程，每个 1 个线程，torch 2.13.0
parameters  18,000: token embedding 16,384, norms 320
参数量      18,000：token 嵌入 16,384，归一化层 320
step 30/60: loss 5.3274, best validation 5.393, 10,675 tokens/s, 1.2 s left
第 30/60 步：损失 5.3274，最低验证损失 5.393，10,675 token/s，剩余 1.2 秒
step 30: loss 5.3274, 10,675 tokens/s, 3 min 20 s left
第 30 步：损失 5.3274，10,675 token/s，剩余 3 分 20 秒
step 7, loss 5.327, best 5.1, 9 tokens/s, 1.2 s left
第 7 步，损失 5.327，最低 5.1，9 token/s，剩余 1.2 秒
step 40: validation loss 3.2 nats/token, 4.8 bits/byte, worse by 0.01 than at step 30
第 40 步：验证损失 3.2 nat/token，4.8 bit/byte，比第 30 步高 0.01
stopped by Ctrl-C; step 7 is saved. To continue: gpt train --out runs/a --resume
已按 Ctrl-C 停止，第 7 步已保存。接着训练：gpt train --out runs/a --resume
stopped by SIGTERM; step 7 is saved. To continue: gpt train --out runs/a --resume
因收到 SIGTERM 而停止，第 7 步已保存。接着训练：gpt train --out runs/a --resume
ended by a second signal, SIGINT, without saving the last steps; resume: gpt train --out a --resume
第二次收到信号（SIGINT），立即结束，最后几步没有保存；接着训练：gpt train --out a --resume
ended by a second signal, SIGINT, after all was saved
第二次收到信号（SIGINT），立即结束；已全部保存
tokenizing: 1.2 of 4.0 MB, 300.0 kB/s, 9.3 s left
分词：1.2/4.0 MB，每秒 300.0 kB，剩余 9.3 秒
evaluating: 3,000 of 4,000 tokens, 2 min 3 s left
评估：3,000/4,000 个 token，剩余 2 分 3 秒
training: 3 of 40 steps, 20 s
训练：3/40 步，已用 20 秒
computing attention: 12 s
计算注意力：已用 12 秒
a learning rate of 0.3 is 75 times what is usual at a width of 128; try --set train.learning_rate=0.004
学习率 0.3 是宽度 128 下通常值的 75 倍；可以试试 --set train.learning_rate=0.004
step 20: validation loss 5.6 nats/token, 4.8 bits/byte, the same as at step 10
第 20 步：验证损失 5.6 nat/token，4.8 bit/byte，与第 10 步持平
advice: step 1,000: the loss has not moved since step 500: 2.400; try --set model.d_model=256
建议（第 1,000 步）：从第 500 步起，损失一直没有变化：2.400；可以试试 --set model.d_model=256
this is not YAML: found character '\t' that cannot start any token
这不是有效的 YAML：缩进要用空格，不能用制表符
this is not YAML: expected the node content, but found '<stream end>'
这不是有效的 YAML：这里应为值，内容却已结束
"a" is not allowed; use auto | float32 | bfloat16
"a" 无效；请用 auto、float32、bfloat16
"a" is not one of pre, post, none
"a" 无效；请用 pre、post、none
"a" is not allowed; use best, last or the number of a step
"a" 无效；请用 best、last 或步数
"9" is not allowed; use a whole number from 1 to 5
"9" 无效；请用整数（1 到 5）
2 runs at once, each with 1 thread and a GPU
同时训练 2 个，每个用 1 个线程和一块 GPU
wrote a.html: 31 steps, 2 layers, 1 head, 24 tokens
已写入 a.html：31 步、2 层、1 个头、24 个 token
reading directions: 3 of 16 attention heads, 5.0 s left
读取各个头的方向：3/16 个头，剩余 5.0 秒
its tokenizer differs from that of a.safetensors, so its layers read other tokens
分词器与 a.safetensors 的不同，各层读到的是别的 token
it has no tokens, or one of more than 1,000 characters
里面没有 token，或者有一个超过 1,000 个字符
8 heads on 40 tokens take about 3.0 GB of memory, but only 1.0 GB are free
8 个头、40 个 token 约需 3.0 GB 内存，现在只有 1.0 GB 空闲
8 sequences of 5 tokens take about 3.0 GB of memory, but only 1.0 GB are free
8 个序列 × 5 个 token 约需 3.0 GB 内存，现在只有 1.0 GB 空闲
1 sample of 1 token take about 3.0 GB of memory, but only 1.0 GB are free
1 份样本 × 1 个 token 约需 3.0 GB 内存，现在只有 1.0 GB 空闲
--data and --prompt cannot be combined; leave one of them out
--data 与 --prompt 不能同时用，请去掉其中一个
""".strip().splitlines()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *zip(SAID[::2], SAID[1::2], strict=True),
        (
            "advice: a model of 0.82 M parameters reads 3,204 tokens 667 times, and will memorise them; "
            "try more text, another --data FILE beside the first",
            "建议：82 万个参数把 3,204 个 token 读 667 遍，会把它们背下来；最好增加文本，例如再写一个 --data FILE",
        ),
        (
            "the vocabulary of 16,384 tokens takes 89% of the parameters, and an entry occurs 17 times in the "
            "text on average; try --set tokenizer.vocab_size=2048",
            "含 16,384 个 token 的词表占去了 89% 的参数，而文本中平均每个词条只出现 17 次；"
            "可以试试 --set tokenizer.vocab_size=2048",
        ),
    ],
)
def test_a_line_of_several_texts_is_said_as_one_sentence(line: str, said: str) -> None:
    assert chinese().find(line) == said


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DataError("prompt", "it has 60 tokens, but this model sees 16"), "error: 提示词：共有 60 个 token，而这个模型最多看 16 个"),
        (DataError("a.txt: line 1", "unheard of"), "error: a.txt 第 1 行：unheard of"),
        (DataError("--prompt", "there is no such file"), "error: --prompt: 没有这个文件"),
        (UsageError("--query", "--query and --data cannot be combined; leave one of them out"), "error: --query 与 --data 不能同时用，请去掉其中一个"),
        (DataError('"文本.txt"', "there is no such file"), 'error: "文本.txt": 没有这个文件'),
        (DataError("--query", "--query needs --prompt or --prompt-file"), "error: --query 要与 --prompt 或 --prompt-file 一起用"),
        (DataError("--query", "--query is unheard of"), "error: --query is unheard of"),
        (DataError("heads", "2 heads on 3 tokens take about 3.0 GB of memory, but only 1.0 GB are free"), "error: heads: 2 个头、3 个 token 约需 3.0 GB 内存，现在只有 1.0 GB 空闲"),
    ],
)  # fmt: skip
def test_after_chinese_words_a_colon_is_chinese(error: GptError, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    assert error.lines() == [line]
    monkeypatch.setenv("GPT_LANGUAGE", "en")
    assert error.lines() == [f"error: {error}"]


def test_no_chinese_text_has_an_english_colon() -> None:
    said = "\n".join(chinese().pairs.values()).replace("格式是 位置: 编号", "")  # which is how labels are written
    assert not re.search(r"[\u4e00-\u9fff]: ", said)


@pytest.mark.parametrize(
    "text",
    [
        "mean norm of the residual stream",
        "4 rows of a table that nobody knows",
        "runs/a: 18,000 parameters, 4 blocks of 4 heads",
    ],
)
def test_a_text_that_the_catalogue_lacks_stays_as_it_is_though_it_counts_something_of_something(text: str) -> None:
    assert chinese().say(text) == text


@pytest.mark.parametrize("part", _PARTS.values())
def test_every_part_of_a_model_has_a_name(part: str) -> None:
    assert chinese().find(f"{part} 1,024")


@pytest.mark.parametrize("other", ["惊奇度", "意外程度", "抽样", "名称", "即 stdin"])
def test_each_thing_has_one_word(other: str) -> None:
    """What the glossary at the top of cli.toml calls otherwise is nowhere: messages, pages, documents."""
    texts = {"messages": "\n".join(chinese().pairs.values())}
    texts |= {page.name: page.read_text("utf-8") for page in (*CHINESE, *(PACKAGE / "tools/pages").rglob("*.js"))}
    assert not [name for name, text in texts.items() if other in text]


def test_a_layer_and_a_head_are_named_in_one_way() -> None:
    """第 0 层第 0 头, or L0 H0 where there is little room."""
    sources = [*PACKAGE.rglob("*.js"), *PACKAGE.rglob("words.py"), *PACKAGE.rglob("*.toml"), *CHINESE]
    number = r"(\d|\$?\{\w+\})"
    other = re.compile(rf"[^个\w]头 {number}|{number} 层[ ，的]+(第 {number} )?头")
    assert not [path.name for path in sources if other.search(path.read_text("utf-8"))]


def test_no_clause_begins_with_it() -> None:
    """Chinese names the thing again, or leaves it out."""
    assert not [said for said in chinese().pairs.values() if re.search(r"(^|[，；：。])它(?!们的列表)", said)]


def test_marks_between_chinese_words_are_full_width() -> None:
    narrow = re.compile("[\u4e00-\u9fff][,;?!]( |[\u4e00-\u9fff]|$)")
    assert not [said for said in chinese().pairs.values() if narrow.search(said)]
