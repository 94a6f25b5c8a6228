// The words of the first page of a hand-out.
Object.assign(WORDS.en, {
  title: "A model to look into",
  origin: ({ run, step, best_loss, parameters }) => `${run}, step ${step}${best_loss ? `, lowest validation loss until then ${best_loss.toFixed(4)}` : ""} · ${parameters.toLocaleString("en")} parameters`,
  prompt: (text) => ["Our text: “", text, "”"],
  names: { model: "The model", attention: "Its attention", film: "How it learned to look" },
  meanings: {
    model: "Type, and see what may come next. Let it write, look at its heads, switch one off, and follow all numbers of one.",
    attention: "Where each head looks in our text, and which tokens it makes more probable there.",
    film: "Where the heads looked at each step of the training, on the text of --watch.",
  },
  offline: "These pages need no network. To pass them on, copy the whole folder.",
});
Object.assign(WORDS.zh, {
  title: "看看模型里面",
  origin: ({ run, step, best_loss, parameters }) => `${run}，第 ${step} 步${best_loss ? `，最低验证损失 ${best_loss.toFixed(4)}` : ""} · ${parameters.toLocaleString("en")} 个参数`,
  prompt: (text) => ["我们的文本：“", text, "”"],
  names: { model: "模型", attention: "模型的注意力", film: "模型怎样学会看" },
  meanings: {
    model: "输入文字，看接下来可能出现什么；让它续写，看各个头在看哪里，关闭一个头，或逐步跟随一个头的全部数值。",
    attention: "每个头在我们的文本里看哪里，又让哪些 token 更可能出现。",
    film: "训练的每个时刻，各个头在看哪里；用的是训练时一直观察的文本。",
  },
  offline: "这些网页不需要网络。要转给别人，请复制整个文件夹。",
});
