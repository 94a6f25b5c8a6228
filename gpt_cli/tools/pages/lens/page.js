// The page of `gpt lens`: the grid of a prompt, or the curves of a text; with --tuned also behind the maps.

start(async ({ origin, labels, lens, layers, tuned }) => {
  const lenses = lens && { logit: await PackedLens.read(lens, labels.length), tuned: tuned && await PackedLens.read(tuned.lens, labels.length) };
  const view = lens && new LensView();
  byId("lens").hidden = !lens;
  byId("curves").hidden = Boolean(lens);
  byId("tuned").hidden = !tuned;
  byId("choosing").hidden = !tuned || !lens;
  const show = () => {
    const { words } = shell;
    byId("sizes").textContent = words.sizes((lens ?? { layers }).layers.length, origin.tokens);
    byId("origin").textContent = words.origin(isolated(origin.source), origin.checkpoint, origin.step);
    document.title = `${words.title}: ${origin.source} – gpt`;
    if (tuned) byId("tuned").textContent = words.tunedHelp(isolated(tuned.text), tuned.steps);
    for (const option of byId("which").options) option.textContent = words.lenses[option.value];
    if (view) view.show(lenses[tuned ? byId("which").value : "logit"], labels, words);
    else byId("panels").replaceChildren(...Object.keys(MEASURES).map((name) => panelOf(name, layers, tuned ? ["logit", "tuned"] : ["logit"], words)));
  };
  const shell = new Shell(show);
  byId("which").addEventListener("change", show);
  show();
});
