// The words that only the page of a report on heads has.
Object.assign(WORDS.en, {
  title: "Heads",
  origin: (text, tokens, checkpoint, step) => `${counted(tokens, "token")} of ${text} · ${checkpoint}, step ${step}`,
  curve: "how much more the chosen head writes at its last passages than on average, by step",
  atLast: (head) => `${head}: its size at the passages of the last step, as a multiple of its mean`,
  someSteps: (shown, all) => ` · ${shown} of ${all} steps`,
  tableHelp: "A row for each head. The title of a column sorts by it; a row chooses its head, and so do the arrow keys.",
  label: "label",
  passages: "Where it writes most",
  size: (value, place) => `size ${value} at token ${place.toLocaleString("en")}; looks at `,
  shades: "The stronger the colour of a token, the more the head writes there; the frame marks the token where it writes most, an orange line the tokens that the head looks at from there.",
  none: "This head writes nothing in this text.",
  ov: ["OV", "reads", "writes"],
  qk: ["QK", "tokens that look", "look at"],
  query: ["at the query", "raises", "lowers"],
  composed: (baseline) => `Composition with other heads (${baseline} if turned at random)`,
  receives: "reads from",
  gives: "is read by",
});
Object.assign(WORDS.zh, {
  title: "注意力头",
  origin: (text, tokens, checkpoint, step) => `${text} 的 ${tokens.toLocaleString("en")} 个 token · ${checkpoint}，第 ${step} 步`,
  curve: "所选的头在最后一步的片段处的大小与其平均之比，随训练步的变化",
  atLast: (head) => `${head}：在最后一步的片段处，大小是平均值的几倍`,
  someSteps: (shown, all) => ` · ${all} 步中的 ${shown} 步`,
  tableHelp: "每行是一个头。点列标题按该列排序；点一行选择这个头，也可以用方向键。",
  label: "标签",
  passages: "写入最多的地方",
  size: (value, place) => `token ${place.toLocaleString("en")} 处，大小 ${value}；关注 `,
  shades: "底色越浓，该头在此处写入得越多；方框是写入最多的 token，橙色下划线是它从那里关注的 token。",
  none: "这个头在这段文本中没有写入任何内容。",
  ov: ["OV", "读取", "写入"],
  qk: ["QK", "查询 token", "被关注的 token"],
  query: ["在所选位置", "提高", "降低"],
  composed: (baseline) => `与其他头的组合（随机旋转时为 ${baseline}）`,
  receives: "读取它们的输出",
  gives: "读取它的输出",
});
Object.assign(WORDS.en.columns, { loss_change: "loss change", mean_size: "mean size", ratio: "at its last passages" });
Object.assign(WORDS.zh.columns, { loss_change: "损失变化", mean_size: "平均大小", ratio: "最后的片段处" });
Object.assign(WORDS.en.meanings, { loss_change: "how much the loss rises without this head, in nats", mean_size: "the mean norm of what it writes", ratio: "its size at the passages of the last step, as a multiple of its mean" });
Object.assign(WORDS.zh.meanings, { loss_change: "去掉这个头之后损失升高多少（nat）", mean_size: "写入内容的平均范数", ratio: "在最后一步的片段处，大小是平均值的几倍" });
