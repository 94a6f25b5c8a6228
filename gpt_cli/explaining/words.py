"""The words of explanations, in two languages."""

from __future__ import annotations

from gpt_cli.explaining.explanation import Note
from gpt_cli.language import LANGUAGES

_WORDS: dict[str, tuple[str, str]] = {
    # a head of a trained model
    "head_title": (
        "layer {layer}, head {head}: T = {T} tokens of D = {D} numbers, H = {H} heads of K = {K}",
        "第 {layer} 层第 {head} 头（从 0 数起）：T = {T} 个 token，每个 D = {D} 个数；H = {H} 个头，每个 K = {K}",
    ),
    "token_embedding": ("token embedding", "token 嵌入"),
    "ngram_embedding": ("n-gram embedding of the preceding tokens", "前面 token 的 n-gram 嵌入"),
    "ngram_normalised": ("normalised sum", "求和后归一化"),
    "position_embedding": ("position embedding", "位置嵌入"),
    "stream": ("residual stream into the block", "进入该层的残差流"),
    "normalised": ("normalised", "归一化"),
    "queries": ("queries", "查询"),
    "keys": ("keys", "键"),
    "values": ("values", "值"),
    "latent": ("latent vectors, the source of keys and values", "潜向量（键和值的来源）"),
    "query_latent": ("latent vectors of the queries", "查询的潜向量"),
    "rotary_queries": ("rotary part of the queries", "查询的旋转部分"),
    "rotary_keys": ("rotary part of the keys, shared by all heads", "键的旋转部分，所有头共用"),
    "rotated_queries": ("queries rotated by position t", "按位置 t 旋转后的查询"),
    "rotated_keys": ("keys rotated by position t", "按位置 t 旋转后的键"),
    "scores": ("scores", "得分"),
    "divided": ("divided", "缩放"),
    "masked": ("masked", "掩码"),
    "weights": ("weights", "权重"),
    "weighted_values": ("weight times value", "权重乘以值"),
    "head_output": ("output of the head", "头的输出"),
    "concatenated": ("outputs of all heads, side by side", "所有头的输出拼接"),
    "projected": ("projection layer", "投影层"),
    "residual": ("residual stream after attention", "注意力之后的残差流"),
    "normalised_after": ("normalised after the sum", "相加之后归一化"),
    "most_weight": ("{query} looks most at: {list}", "{query} 最关注：{list}"),
    "largest_parts": (
        "longest terms for {query}: {list}",
        "{query} 的加权和中，长度最大的几项：{list}",
    ),
    "ids_said": ("ids: {ids}", "token 编号：{ids}"),
    "norm_said": ("g: the weights of the norm", "g：归一化层的缩放参数"),
    "norm_bias_said": ("g and b: the weights and the bias of the norm", "g 和 b：归一化层的缩放参数和偏置"),
    "rotation_said": (
        "{key}₁ and {key}₂ are the halves of {key}; pair n of them rotates by t θₙ, θₙ = 10000^(-2n / {size})",
        "{key}₁ 和 {key}₂ 是 {key} 的前后两半；第 n 对分量旋转 t θₙ，θₙ = 10000^(-2n / {size})",
    ),
    "places_said": (
        "i: the position of the token that looks; j: of the token it looks at",
        "i：查询 token 的位置；j：被关注 token 的位置",
    ),
    "rounded": (
        "Rounded to 4 decimals; … stands for omitted columns. --json prints every number in full.",
        "四舍五入到 4 位小数；… 表示省略的列。--json 以完整精度输出所有数值。",
    ),
    # the journey of six tokens
    "journey_title": (
        "six tokens of three numbers: attention from scratch",
        "六个 token，每个三个数：从零实现注意力",
    ),
    "inputs": ("the embeddings", "嵌入"),
    "simple": ("a. without trainable parameters", "a. 没有可训练参数"),
    "trainable": (
        "b. with trainable matrices (seed 123, uniform random numbers)",
        "b. 使用可训练矩阵（种子 123，均匀分布随机数）",
    ),
    "linear": (
        "c. with linear layers (seed 789, torch's initialisation)",
        "c. 使用线性层（种子 789，torch 的默认初始化）",
    ),
    "causal": (
        "d. causal: no token sees a later one (same layers as c)",
        "d. 因果：每个 token 都看不到后面的 token（线性层同 c）",
    ),
    "dropout": (
        "e. dropout on the weights of d (p = 0.5, seed 123)",
        "e. 对 d 的权重应用 dropout（p = 0.5，种子 123）",
    ),
    "multi_head": ("f. two causal heads, side by side (seed 123)", "f. 两个因果注意力头，输出拼接（种子 123）"),
    "split": (
        "g. one projection split into two heads, and an output layer (seed 123)",
        "g. 一个投影拆成两个头，再接输出层（种子 123）",
    ),
    "shares": ("scores divided by their sum", "得分除以各行之和"),
    "contexts": ("contexts", "上下文向量"),
    "weights_before_masking": ("weights before masking", "掩码之前的权重"),
    "masked_weights": ("masked, not renormalised", "softmax 之后加掩码，未重新归一化"),
    "renormalised": ("renormalised", "重新归一化"),
    "masked_before_softmax": ("the same result by masking before softmax", "在 softmax 之前加掩码，结果相同"),
    "dropped": ("after dropout: the remaining weights are doubled", "dropout 之后：保留的权重加倍"),
    "head_step": ("head {number}: {what}", "第 {number} 头：{what}"),
    # studies
    "scaling_title": ("why scores are divided by √K", "为什么得分要除以 √K"),
    "random_scores": (
        "softmax of random queries and keys: mean of {rows} rows of {keys} scores",
        "随机查询与键的得分经 softmax：{rows} 行的平均，每行 {keys} 个得分",
    ),
    "random_said": (
        "Undivided scores grow with √K: softmax picks one key, and its entropy (in nats) falls to 0. The "
        "gradient, the norm of the derivative of softmax with respect to its scores, first grows and then "
        "vanishes too.",
        "得分若不除以 √K，会随 √K 增大：softmax 几乎只选中一个键，熵（单位 nat）降到 0；梯度（softmax "
        "对得分的导数的范数）先增大，随后也趋于 0。",
    ),
    "model_scores": (
        "the heads of {run}, on {tokens} tokens that the model wrote",
        "{run} 的各注意力头，输入是模型自己生成的 {tokens} 个 token",
    ),
    "normal_numbers": (
        "softmax of {count} normal numbers with standard deviation 100",
        "{count} 个正态随机数（标准差 100）的 softmax",
    ),
    "normal_said": (
        "Undivided, the largest number takes all the weight; divided by 100, every number keeps a share.",
        "不缩放时，最大的数几乎独占全部权重；除以 100 后，每个数都能分到权重。",
    ),
    "mask_title": (
        "masking before softmax, or renormalising after it",
        "在 softmax 之前加掩码，还是之后加掩码再重新归一化",
    ),
    "leak_change": (
        "largest change of a weight in each row when the last token changes",
        "更换最后一个 token 时，各行权重的最大变化",
    ),
    "mask_same": (
        "Masking before softmax and renormalising after it differ by at most {difference:.1e}.",
        "在 softmax 之前加掩码，与之后加掩码再重新归一化，结果最多相差 {difference:.1e}。",
    ),
    "mask_leak": (
        "Rows that are masked but not renormalised sum to less than 1. The missing share depends on tokens still "
        "to come: they leak.",
        "加掩码后若不重新归一化，各行之和小于 1，而缺少的部分取决于后面的 token：这就泄漏了未来的信息。",
    ),
    "row_sums": ("sums of the rows", "各行之和"),
    "dropout_title": ("what dropout does to a row of weights", "dropout 如何改变一行权重"),
    "dropout_draws": (
        "a row of weights, and five draws of dropout with p = {p}",
        "一行权重，以及 p = {p} 时 dropout 的五次采样",
    ),
    "dropout_mean": ("mean of {count}", "{count} 次的平均"),
    "dropout_said": (
        "Dropout multiplies the remaining weights by 1 / (1 - p), so the mean of many draws is the row itself. A "
        "single draw no longer sums to 1.",
        "保留的权重乘以 1 / (1 - p)，因此多次采样的平均值就是原来那一行；单次采样的和不再是 1。",
    ),
    "padding_title": ("two sentences in one batch, where id 0 is padding", "同一批次中的两个句子，编号 0 是填充"),
    "sentence": ("sentence {ids}, head {head}", "句子 {ids}，第 {head} 头"),
    "padding_said": (
        "Padding gets a weight of exactly 0, because its scores are -∞ before softmax. Rows of padding look at "
        "the words too, but nothing uses them. There is no causal mask here; embeddings and heads are random "
        "(seed 0). A label is position: id.",
        "填充的权重恰好为 0，因为 softmax 之前它的得分是 -∞。填充所在的行也有对词的权重，但不会被使用。"
        "这里没有因果掩码，嵌入和注意力头都是随机的（种子 0）。标签的格式是 位置: 编号。",
    ),
    # columns of studies; three pairs must fit into 80 cells
    "entropy": ("entropy", "熵"),
    "entropy_divided": ("(÷√K)", "熵(已缩放)"),
    "largest": ("largest", "最大权重"),
    "largest_divided": ("(÷√K)", "最大权重(已缩放)"),
    "gradient": ("gradient", "梯度"),
    "gradient_divided": ("(÷√K)", "梯度(已缩放)"),
    "before": ("undivided", "不缩放"),
    "scaled": ("divided", "已缩放"),
    "after": ("divided by 100", "除以 100"),
    "layer": ("layer {number}", "第 {number} 层"),
    "draw": ("draw {number}", "第 {number} 次"),
    "row": ("the row", "原来的行"),
    "before_softmax": ("masked before softmax", "softmax 之前加掩码"),
    "not_renormalised": ("masked after, not renormalised", "之后加掩码，未重新归一化"),
}


def say(label: Note | str, language: str) -> str:
    """A note in one of LANGUAGES; a plain text, such as that of a token, unchanged."""
    if isinstance(label, str):
        return label
    gaps = {name: say(gap, language) if isinstance(gap, Note) else gap for name, gap in label.gaps.items()}
    return _WORDS[label.key][LANGUAGES.index(language)].format(**gaps)
