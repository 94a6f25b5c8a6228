// The attention page: what is chosen, and what follows from it.

class Page {
  constructor(weights, scores, writes) {
    this.weights = weights;
    this.scores = scores; // null where the file has none
    this.writes = writes; // likewise
    // the view: places of a layer and a head, null for the mean; `hovered` comes before `chosen`; `pointed` is [query, key]
    const first = weights.frames ? scores.highest(weights.frame, "induction") : 0; // of a film, whose curve this is
    this.layer = Math.floor(first / weights.heads.length);
    this.head = first % weights.heads.length;
    this.chosen = weights.numTokens - 1;
    this.hovered = null;
    this.pointed = null;
    this.threshold = 0;
    this.palette = paletteOf(weights.colours);
    this.shell = new Shell(() => this.speakAndShow());
    this.heads = new Heads(this);
    this.tokens = new Tokens(this);
    this.film = weights.frames ? new Film(this, weights.frames) : null;
    this.listen();
    this.speakAndShow();
    this.tokens.bringToView();
  }

  get words() { return this.shell.words; }
  get frame() { return this.weights.frame; }
  get place() { return this.weights.place(this.layer, this.head); }
  get token() { return this.hovered ?? this.chosen; }

  // --- what the user does

  listen() {
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.choose(null));
    byId("map").addEventListener("pointermove", (event) => this.point(event));
    byId("map").addEventListener("click", (event) => this.point(event)); // of a finger, which does not move first
    byId("map").addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.hover(null, false));
    byId("threshold").addEventListener("input", (event) => {
      this.threshold = (event.target.value / 100) ** 2; // fine steps where weights are small
      this.show();
    });
    byId("copy-csv").addEventListener("click", () => {
      const blob = new Blob([this.weights.csv(this.layer, this.head)], { type: "text/plain" });
      this.shell.copy(blob, "attention.csv");
    });
    byId("copy-png").addEventListener("click", () => byId("map").toBlob((blob) => this.shell.copy(blob, "attention.png")));
    window.addEventListener("resize", () => this.show());
  }

  take(layer, head) {
    this.layer = layer;
    this.head = head;
    this.show();
  }

  // `bring`: also bring it to view in the rows, which would run away below a pointer that is on them.
  hover(token, bring) {
    if (token === this.hovered && this.pointed === null) return;
    this.hovered = token;
    this.pointed = null;
    this.showToken();
    if (bring) this.tokens.bringToView();
  }

  choose(token) {
    this.chosen = token;
    this.hovered = this.pointed = null;
    this.showToken();
    this.tokens.bringToView();
  }

  point(event) {
    const place = (distance) => Math.floor((distance - this.cells.margin) / this.cells.cell);
    const [key, query] = [place(event.offsetX), place(event.offsetY)];
    const inside = query >= 0 && query < this.weights.numTokens && key >= 0 && key <= query;
    this.hovered = inside ? query : null;
    this.pointed = inside ? [query, key] : null;
    this.showToken();
    if (inside) this.tokens.bringToView();
  }

  // --- the parts that follow from a choice

  weight(query, key) {
    return this.weights.of(this.layer, this.head)[query * this.weights.numTokens + key];
  }

  name(layer, head) {
    const { words, weights } = this;
    if (layer === null) return words.averageOfAll(weights.layers.length * weights.heads.length);
    const second = head === null ? words.averageOf(weights.heads.length) : words.head(weights.heads[head]);
    return `${words.layer(weights.layers[layer])} ${second}`;
  }

  // All words that the language changes, and the scale.
  speakAndShow() {
    const { words, weights } = this;
    const { origin } = weights;
    const title = this.film ? words.filmTitle : words.title;
    document.querySelector("h1").textContent = title;
    document.title = `${title}${origin ? `: ${origin.prompt}` : ""} – gpt`;
    byId("origin").textContent = origin ? words.origin(`\u2068${origin.prompt}\u2069`, origin.checkpoint, origin.step) : "";
    this.film?.speak();
    byId("sizes").textContent = words.sizes(weights.layers.length, weights.heads.length, weights.numTokens);
    byId("scale-ends").textContent = words.scale;
    byId("precision").textContent = words.precision(weights.levels, (0.25 / weights.levels ** 2).toExponential(0));
    this.heads.speak();
    explainScores(this);
    const scale = byId("scale").getContext("2d");
    for (let x = 0; x < 256; x++) {
      scale.fillStyle = `rgb(${colourOf(weights.colours, (x / 255) ** 2)})`;
      scale.fillRect(x, 0, 1, 10);
    }
    this.show();
  }

  // Everything that the chosen head, the frame or the threshold changes.
  show() {
    const { weights, threshold } = this;
    byId("threshold-shown").textContent = threshold.toFixed(4);
    byId("threshold").setAttribute("aria-valuetext", threshold.toFixed(4));
    byId("head-name").textContent = this.name(this.layer, this.head);
    this.heads.show();
    showScores(this);
    this.film?.show();
    const short = weights.labels.map((label) => label.short);
    const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`);
    this.cells = drawLarge(byId("map"), weights.of(this.layer, this.head), short, threshold,
      { palette: this.palette, ink: colour("ink"), ground: colour("ground"), room: byId("map-frame").clientWidth });
    this.showToken();
  }

  // Everything that the token under the pointer changes.
  showToken() {
    this.tokens.show();
    showWrites(this);
    const [query, key] = this.pointed ?? [];
    byId("cell").textContent = this.pointed === null ? ""
      : this.words.cell(this.tokens.quoted(query), this.tokens.quoted(key), this.weight(query, key).toFixed(4));
  }
}

start(async (content) => {
  const weights = await Weights.read(content);
  const scores = content.scores && await Scores.read(content.scores, weights.numHeads);
  const writes = content.writes && await Writes.read(content.writes, weights.numTokens);
  new Page(weights, scores, writes);
});
