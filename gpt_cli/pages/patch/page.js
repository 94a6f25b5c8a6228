// The page of `gpt patch`: its texts, and the grids of what patches recover.

start(async ({ origin, texts, pairs, metric, answer, against, metrics, tokens, patch }) => {
  const result = await PatchResult.read(patch, tokens);
  const view = new PatchView();
  const show = () => {
    const { words } = shell;
    const isolated = (text) => `\u2068${text}\u2069`;
    byId("origin").textContent = words.origin(origin.checkpoint, origin.step);
    document.title = `${words.title}: ${texts.clean ?? pairs.file} – gpt`;
    byId("pairs").textContent = pairs ? words.pairs(pairs.file, pairs.number) : "";
    const [one, other] = [answer, against].map((token) => token && isolated(marked(token)));
    const named = metric === "log_probability" && one ? words.chanceOf(one) : one && other ? words.metricOf(one, other) : words.metrics[metric] ?? metric;
    const figures = (kind) => (metrics[kind] === null ? "" : ` · ${named} ${numberOf(metrics[kind], 4)}`);
    byId("texts").replaceChildren(...["clean", "corrupt"].flatMap((kind) =>
      [element("dt", "", words[kind] + figures(kind)), element("dd", "", texts[kind] === null ? "" : isolated(texts[kind]))]));
    view.show(result, metrics, words);
  };
  const shell = new Shell(show);
  show();
});
