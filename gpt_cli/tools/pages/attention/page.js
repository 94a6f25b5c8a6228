// The attention page: the views, and what only a file of weights has.

class AttentionPage extends Views {
  constructor(weights, scores, writes, lens, named) {
    const first = weights.frames ? scores.highest(weights.frame, "induction") : 0; // of a film, whose curve this is
    super(new Shell(() => this.speakAndShow()), weights, weights.colours, first);
    this.named = named; // by whom wrote the page; perhaps nothing
    this.scores = scores;
    this.heads = new Heads(this);
    this.writes = writes; // null where the file has none
    this.lens = lens; // likewise
    this.lensView = lens && new LensView();
    byId("lens").hidden = lens === null;
    this.scatter = new Scatter(this, scores.columns, weights.numHeads);
    byId("scattering").hidden = weights.numHeads < 2;
    this.film = weights.frames ? new Film(this, weights.frames.steps) : null;
    byId("details").classList.toggle("written", weights.numGenerated > 0); // a line more
    this.speakAndShow();
    this.tokens.bringToView();
  }

  takeHead(place) { this.take(...this.weights.layerAndHead(place)); }

  // --- of a film

  goTo(frame, playing) {
    this.weights.show(frame);
    if (!playing) this.heads.arrange(); // while it plays, heads keep their places
    this.show();
  }

  moment() {
    const { steps, losses } = this.weights.frames;
    return this.words.moment(steps[this.frame], losses[this.frame].toFixed(4));
  }

  // The loss, and the score of the chosen head: by induction where the heads have no other order.
  panels() {
    const { scores, frame, words, place, heads } = this;
    const { steps, losses, curves } = this.weights.frames;
    const panels = [{
      name: curves.validation_loss.length ? words.lossAndValidation : words.loss,
      now: losses[frame].toFixed(4),
      lines: [["loss", curves.loss.length ? curves.loss : steps.map((step, at) => [step, losses[at]])], ["validation", curves.validation_loss]],
    }];
    if (place === null) return panels;
    const column = heads.column ?? "induction";
    const points = steps.map((step, at) => [step, scores.of(at, place, column)]).filter(([, score]) => !Number.isNaN(score));
    const name = `${this.shortName(place)} ${words.columns[column]}`;
    return [...panels, { name, now: scoreText(this.score(place, column)), lines: [["score", points]], ends: [0, 1] }];
  }

  // Of a token that the model wrote.
  told(token) {
    const { numTokens, numGenerated, generated } = this.weights;
    const written = generated[token - numTokens + numGenerated];
    return written ? [this.words.generated(written.probability.toFixed(4), written.rank)] : [];
  }

  speakAndShow() {
    this.speak();
    this.show();
  }

  speak() {
    const { words, weights } = this;
    const { origin } = weights;
    const kind = this.film ? words.filmTitle : words.title;
    const title = this.named ? `${this.named} · ${kind}` : kind;
    document.querySelector("h1").textContent = title;
    document.title = `${title}: ${origin.prompt} – gpt`;
    byId("origin").textContent = words.origin(isolated(origin.prompt), origin.checkpoint, origin.step);
    this.film?.speak();
    byId("sizes").textContent = words.sizes(weights.layers.length, weights.heads.length, weights.numTokens);
    byId("precision").textContent = words.precision(weights.levels, (0.25 / weights.levels ** 2).toExponential(0));
    super.speak();
    this.scatter.speak();
  }

  show() {
    this.film?.show();
    super.show();
    this.scatter.show();
    if (!this.lens) return;
    this.lens.frame = this.film ? this.frame : 0;
    this.lensView.show(this.lens, this.weights.labels, this.words);
  }
}

start(async (content) => {
  const weights = await PackedWeights.read(content);
  const scores = await Scores.read(content.scores, weights);
  const writes = content.writes && await PackedWrites.read(content.writes, weights.numTokens);
  const lens = content.lens && await PackedLens.read(content.lens, weights.numTokens);
  new AttentionPage(weights, scores, writes, lens, content.title);
});
