// The words that only the page of patches has.
Object.assign(WORDS.en, {
  title: "What patches recover",
  patchHelp: "The model reads the corrupt text, with one activation replaced by that of the clean text. A cell is the share of the difference between the two texts that this brings back: 0 as on the corrupt text, 1 as on the clean one. Point at a cell, tap it, or walk with the arrow keys.",
  origin: (checkpoint, step) => `${checkpoint}, step ${step}`,
  curve: "the metric on both texts, and the share of the chosen cell, by step",
  bothTexts: (metric) => `${metric} (orange: on the corrupt text)`,
  clean: "clean text",
  corrupt: "corrupt text",
  metrics: { logit_difference: "logit difference", log_probability: "log probability of the answer" },
  pairs: (file, number) => `${counted(number, "pair")} of ${file}${number === 1 ? "" : ": means, ± standard errors"}.`,
  metricOf: (answer, against) => `logit of “${answer}” minus logit of “${against}”`,
  chanceOf: (answer) => `log probability of “${answer}”`,
});
Object.assign(WORDS.zh, {
  title: "替换激活后恢复多少",
  patchHelp: "模型读改坏的提示词，但把其中一处激活换成读原提示词时的值。每格是两段提示词之差恢复了多少：0 与改坏的相同，1 与原来的相同。把鼠标移到格子上、点按格子，或用方向键移动，即可查看数值。",
  origin: (checkpoint, step) => `${checkpoint}，第 ${step} 步`,
  curve: "两段文本上的指标与所选格的恢复比例随训练步的变化",
  bothTexts: (metric) => `${metric}（橙色：改坏的提示词上）`,
  clean: "原提示词",
  corrupt: "改坏的提示词",
  metrics: { logit_difference: "logit 之差", log_probability: "答案的对数概率" },
  pairs: (file, number) => `${file} 中的 ${number.toLocaleString("en")} 对提示词${number === 1 ? "" : "：平均值 ± 标准误"}。`,
  metricOf: (answer, against) => `“${answer}”与“${against}”的 logit 之差`,
  chanceOf: (answer) => `“${answer}”的对数概率`,
});
