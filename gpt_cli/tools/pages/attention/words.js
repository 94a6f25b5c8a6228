// The words that only the attention page has.
Object.assign(WORDS.en, {
  title: "Attention",
  sizes: (layers, heads, tokens) => `${layers} × ${heads} heads on ${tokens} tokens`,
  filmTitle: "Attention over training",
  curve: "the loss, and the score of the chosen head, by step",
  loss: "loss",
  lossAndValidation: "loss (orange: on validation text)",
  generated: (probability, rank) => `written by the model with probability ${probability}, rank ${rank}`,
  precision: (levels, rest) => `Each weight w differs from the one the model computed by at most √w / ${levels} + ${rest}.`,
});
Object.assign(WORDS.zh, {
  title: "注意力",
  sizes: (layers, heads, tokens) => `${layers} 层 × ${heads} 头，${tokens} 个 token`,
  filmTitle: "训练过程中的注意力",
  curve: "损失与所选头的得分随训练步的变化",
  loss: "损失",
  lossAndValidation: "损失（橙色：验证文本上的损失）",
  generated: (probability, rank) => `由模型生成，概率 ${probability}，名次 ${rank}`,
  precision: (levels, rest) => `页面上的权重 w 与模型算出的值相差不超过 √w / ${levels} + ${rest}。`,
});
