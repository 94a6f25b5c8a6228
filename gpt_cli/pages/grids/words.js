// The words of the grids.
Object.assign(WORDS.en, {
  lens: "What each layer would already predict",
  lensHelp: "After each block, the final norm and the output layer turn the residual stream into a prediction (logit lens): the likeliest next token. Point at a cell, tap it, or walk with the arrow keys.",
  lensScale: "probability from 0 to 1",
  lensLabel: "layers by tokens: the likeliest next token after each layer",
  lensPredicts: (layer, token, position, predicted, chance) => `Layer ${layer} after ${token} (token ${position}): ${predicted} is likeliest, with probability ${chance}.`,
  lensTrue: (next, rank, probability, loss) => `The true next token ${next} has rank ${rank} and probability ${probability}: a loss of ${loss} nats.`,
  lensFar: (nats) => `Divergence from the last layer: ${nats} nats.`,
  lensTop: "Likeliest: ",
});
Object.assign(WORDS.zh, {
  lens: "每一层已经会预测什么",
  lensHelp: "在每个块之后，用最终归一化和输出层把残差流变成预测（logit lens），格中是最可能的下一个 token。把鼠标移到格子上、点按格子，或用方向键移动，即可查看数值。",
  lensScale: "概率从 0 到 1",
  lensLabel: "层 × token：每一层之后最可能的下一个 token",
  lensPredicts: (layer, token, position, predicted, chance) => `第 ${layer} 层，读完${token}（token ${position}）：最可能的是${predicted}，概率 ${chance}。`,
  lensTrue: (next, rank, probability, loss) => `真正的下一个 token ${next}排第 ${rank}，概率 ${probability}，损失 ${loss} nat。`,
  lensFar: (nats) => `与最后一层的散度：${nats} nat。`,
  lensTop: "最可能的 token：",
});
