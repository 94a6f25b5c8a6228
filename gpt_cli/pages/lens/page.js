// The page of `gpt lens`: the grid of a prompt, or the curves of a text.

start(async ({ origin, labels, lens, layers }) => {
  const packed = lens && await PackedLens.read(lens, labels.length);
  const view = lens && new LensView();
  byId("lens").hidden = !lens;
  byId("curves").hidden = Boolean(lens);
  const show = () => {
    const { words } = shell;
    byId("sizes").textContent = words.sizes((packed ?? { layers }).layers.length, origin.tokens);
    byId("origin").textContent = words.origin(`\u2068${origin.source}\u2069`, origin.checkpoint, origin.step);
    document.title = `${words.title}: ${origin.source} – gpt`;
    if (view) view.show(packed, labels, words);
    else byId("panels").replaceChildren(...Object.keys(MEASURES).map((name) => panelOf(name, layers, words)));
  };
  const shell = new Shell(show);
  show();
});
