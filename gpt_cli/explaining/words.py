"""What an explanation says, in its two languages."""

from __future__ import annotations

from gpt_cli.explaining.explanation import Note
from gpt_cli.explaining.names import LANGUAGES

_WORDS: dict[str, tuple[str, str]] = {
    # a head of a trained model
    "head_title": (
        "layer {layer}, head {head}: T = {T} tokens of D = {D} numbers, H = {H} heads of K = {K}",
        "第 {layer} 层，头 {head}（从 0 数起）：T = {T} 个 token，每个 D = {D} 个数；H = {H} 个头，每个 K = {K}",
    ),
    "token_embedding": ("token embedding", "token 嵌入"),
    "ngram_embedding": ("added for the tokens before", "由前面的 token 加上的嵌入"),
    "ngram_normalised": ("their sum, normalised", "相加并归一化"),
    "position_embedding": ("position embedding", "位置嵌入"),
    "stream": ("residual stream into the block", "进入该层的残差流"),
    "normalised": ("normalised", "归一化"),
    "queries": ("queries", "查询"),
    "keys": ("keys", "键"),
    "values": ("values", "值"),
    "latent": ("latent, which keys and values are made of", "潜向量，键和值由它得出"),
    "query_latent": ("latent of the queries", "查询的潜向量"),
    "rotary_queries": ("the part of the queries that turns", "查询中要旋转的部分"),
    "rotary_keys": ("the part of the keys that turns, of all heads", "键中要旋转的部分，各头共用"),
    "rotated_queries": ("queries turned by their position t", "按位置 t 旋转后的查询"),
    "rotated_keys": ("keys turned by their position t", "按位置 t 旋转后的键"),
    "scores": ("scores", "得分"),
    "divided": ("divided", "缩放"),
    "masked": ("masked", "掩码"),
    "weights": ("weights", "权重"),
    "weighted_values": ("weight times value", "权重乘以值"),
    "head_output": ("output of the head", "头的输出"),
    "concatenated": ("outputs of all heads, side by side", "所有头的输出并排"),
    "projected": ("projection layer", "投影层"),
    "residual": ("residual stream after attention", "注意力之后的残差流"),
    "normalised_after": ("normalised after the sum", "相加之后归一化"),
    "most_weight": ("{query} looks most at: {list}", "{query} 最关注：{list}"),
    "largest_parts": (
        "largest parts of the sum for {query}, by length: {list}", "{query} 的加权和中最长的部分：{list}",
    ),
    "ids_said": ("ids: {ids}", "编号：{ids}"),
    "norm_said": ("g: the weights of the norm", "g：归一化的权重"),
    "norm_bias_said": ("g and b: the weights and the bias of the norm", "g 和 b：归一化的权重和偏置"),
    "rotation_said": (
        "{key}₁ and {key}₂ are the halves of {key}; pair n of them turns by t θₙ, θₙ = 10000^(-2n / {size})",
        "{key}₁ 和 {key}₂ 是 {key} 的前后两半；其中第 n 对转过 t θₙ，θₙ = 10000^(-2n / {size})",
    ),
    "places_said": (
        "i: the place of the token that looks; j: of the one it looks at",
        "i：正在看的 token 的位置；j：被看的 token 的位置",
    ),
    "rounded": (
        "Rounded to 4 decimals; … stands for more. --json gives every number with every digit.",
        "四舍五入到 4 位小数；… 表示还有更多。--json 给出每个数的每一位。",
    ),
    # the journey of six tokens
    "journey_title": (
        "six tokens of three numbers: attention from scratch", "六个 token，每个三个数：从零开始的注意力",
    ),
    "inputs": ("the embeddings", "嵌入"),
    "simple": ("a. without anything to train", "a. 没有任何可训练的参数"),
    "trainable": (
        "b. with trainable matrices (seed 123, uniform random numbers)", "b. 带可训练矩阵（种子 123，均匀随机数）",
    ),
    "linear": (
        "c. with linear layers (seed 789, torch's initialisation)", "c. 用线性层（种子 789，torch 的初始化）",
    ),
    "causal": ("d. causal: no token sees a later one (the layers of c)", "d. 因果：看不到后面的 token（c 的线性层）"),
    "dropout": ("e. dropout on the weights of d (p 0.5, seed 123)", "e. 对 d 的权重做 dropout（p 0.5，种子 123）"),
    "multi_head": (
        "f. two causal heads, side by side (seed 123)", "f. 两个因果头并排（种子 123）",
    ),
    "split": (
        "g. one projection split into two heads, and an output layer (seed 123)",
        "g. 一个投影拆成两个头，再加输出层（种子 123）",
    ),
    "shares": ("scores divided by their sum", "得分除以总和"),
    "contexts": ("contexts", "上下文向量"),
    "weights_before_masking": ("weights before masking", "掩码之前的权重"),
    "masked_weights": ("masked, not renormalised", "掩码后未归一化"),
    "renormalised": ("renormalised", "重新归一化"),
    "masked_before_softmax": ("the same by masking before softmax", "在 softmax 之前掩码，结果相同"),
    "dropped": ("after dropout: what stays is doubled", "dropout 之后：留下的加倍"),
    "head_step": ("head {number}: {what}", "头 {number}：{what}"),
    # studies
    "scaling_title": ("why scores are divided by √K", "为什么得分要除以 √K"),
    "random_scores": (
        "softmax of random queries and keys: mean of {rows} rows of {keys} scores",
        "随机查询与键的 softmax：{rows} 行的平均，每行 {keys} 个得分",
    ),
    "random_said": (
        "Undivided scores grow with √K: softmax picks one key, and its entropy (in nats) falls to 0. The gradient, the "
        "norm of the derivative of softmax by its own scores, first grows, then vanishes too.",
        "不除以 √K 的得分随 √K 增大：softmax 只选中一个键，熵（单位 nat）降到 0。"
        "梯度（softmax 对其得分的导数的范数）先增大，然后也消失。",
    ),
    "model_scores": (
        "the heads of {run}, on {tokens} tokens it wrote itself", "{run} 的各头，读它自己写的 {tokens} 个 token",
    ),
    "normal_numbers": (
        "{count} normal numbers of standard deviation 100, softmaxed",
        "{count} 个标准差为 100 的正态分布随机数的 softmax",
    ),
    "normal_said": (
        "As they are, the largest number takes everything; divided by 100, all have a share.",
        "原样时，最大的数拿走一切；除以 100 之后，每个数都有一份。",
    ),
    "mask_title": ("masking before softmax, or renormalising after it", "在 softmax 之前掩码，或在之后重新归一化"),
    "leak_change": (
        "largest change of a weight in each row when the last token becomes another",
        "把最后一个 token 换成另一个时，每行权重的最大变化",
    ),
    "mask_same": (
        "Masking before softmax and renormalising after it differ by at most {difference:.1e}.",
        "先掩码再 softmax，与先 softmax、再掩码并重新归一化，最多相差 {difference:.1e}。",
    ),
    "mask_leak": (
        "Masked but not renormalised, rows sum to less than 1, by a share that depends on tokens still to come: "
        "they leak.",
        "掩码后不归一化，每行之和小于 1，缺少的份额取决于后面的 token：未来的信息泄漏了。",
    ),
    "row_sums": ("sums of the rows", "各行之和"),
    "dropout_title": ("what dropout does to a row of weights", "dropout 对一行权重做了什么"),
    "dropout_draws": ("a row, and five draws of dropout with p = {p}", "一行权重，以及 p = {p} 的五次 dropout"),
    "dropout_mean": ("mean of {count}", "{count} 次的平均"),
    "dropout_said": (
        "What stays is multiplied by 1 / (1 - p), so that the mean of many draws is the row itself. "
        "A single row no longer sums to 1.",
        "留下的乘以 1 / (1 - p)，因此多次的平均就是原来那一行。单独一行之和不再是 1。",
    ),
    "padding_title": ("two sentences in one batch, of which 0 is padding", "一个批次里的两个句子，0 是填充"),
    "sentence": ("sentence {ids}, head {head}", "句子 {ids}，头 {head}"),
    "padding_said": (
        "Padding gets weight 0 exactly: its scores are -∞ before softmax. "
        "Rows of padding look at the words too, and nobody uses them. No causal mask here, random embeddings and "
        "heads (seed 0); a label is place: id.",
        "填充的权重恰好为 0：softmax 之前它的得分是 -∞。填充所在的行也会关注词语，但没有人使用它们。"
        "这里没有因果掩码，嵌入和头是随机的（种子 0）；标签为 位置: 编号。",
    ),
    # columns of studies
    "entropy": ("entropy", "熵"),
    "entropy_divided": ("entropy /√K", "熵 /√K"),
    "largest": ("largest", "最大权重"),
    "largest_divided": ("largest /√K", "最大权重 /√K"),
    "gradient": ("gradient", "梯度"),
    "gradient_divided": ("gradient /√K", "梯度 /√K"),
    "before": ("as they are", "原样"),
    "after": ("divided by 100", "除以 100"),
    "layer": ("layer {number}", "第 {number} 层"),
    "draw": ("draw {number}", "第 {number} 次"),
    "row": ("the row", "这一行"),
    "before_softmax": ("masked before softmax", "softmax 之前掩码"),
    "not_renormalised": ("masked after, not renormalised", "之后掩码，未归一化"),
}  # fmt: skip


def say(label: Note | str, language: str) -> str:
    """A note in one of LANGUAGES; a plain text, such as that of a token, as it is."""
    if isinstance(label, str):
        return label
    gaps = {name: say(gap, language) if isinstance(gap, Note) else gap for name, gap in label.gaps.items()}
    return _WORDS[label.key][LANGUAGES.index(language)].format(**gaps)
