// The words that only the page of the lens has.
Object.assign(WORDS.en, {
  title: "The lens",
  sizes: (layers, tokens) => `${counted(layers, "layer")} on ${counted(tokens, "token")}`,
  curvesHelp: "After each block, the final norm and the output layer turn the residual stream into a prediction (logit lens). Means over the tokens of the text; bars, and the numbers after ±, are one standard error.",
  whichLens: "lens",
  lenses: { logit: "logit lens", tuned: "tuned lens", gain: "gain" },
  tunedHelp: (text, steps) => `The tuned lens passes the residual stream through maps that were trained on ${text} in ${steps.toLocaleString("en")} steps.`,
  measures: { loss: "loss (nats)", rank: "rank of the true next token, from 1", probability: "probability of the true next token", divergence: "divergence from the last layer (nats)" },
});
Object.assign(WORDS.zh, {
  title: "逐层预测",
  sizes: (layers, tokens) => `${layers} 层，${tokens.toLocaleString("en")} 个 token`,
  curvesHelp: "在每个块之后，用最终归一化和输出层把残差流变成预测（logit lens）。图中是文本各 token 上的平均值；竖线和 ± 后的数都是一个标准误。",
  whichLens: "逐层预测",
  lenses: { logit: "logit lens", tuned: "tuned lens", gain: "降低" },
  tunedHelp: (text, steps) => `tuned lens 先让残差流经过映射，再作预测；这些映射在 ${text} 上训练了 ${steps.toLocaleString("en")} 步。`,
  measures: { loss: "损失（nat）", rank: "真正的下一个 token 的名次（从 1 数起）", probability: "真正的下一个 token 的概率", divergence: "与最后一层的散度（nat）" },
});
