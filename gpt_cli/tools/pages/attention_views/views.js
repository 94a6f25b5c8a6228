// What is chosen in the views of attention, and what follows from it. A page that has these views derives from them.

class Views {
  // `first` is the place of the head that is shown first. The page that derives from this class makes its `heads`, its
  // `scores` and its `writes`, which may be null, and has told(token): sentences that it adds to those about a token.
  constructor(shell, weights, colours, first) {
    Object.assign(this, { shell, weights, colours });
    // the view: places of a layer and a head, null for the mean; `hovered` comes before `chosen`; `pointed` is [query, key]
    [this.layer, this.head] = weights.layerAndHead(first);
    this.chosen = weights.numTokens - 1;
    this.hovered = null;
    this.pointed = null;
    this.palette = paletteOf(colours);
    this.tokens = new Tokens(this);
    this.listen();
  }

  get words() { return this.shell.words; }
  get frame() { return this.weights.frame; }
  get place() { return this.weights.place(this.layer, this.head); }
  get token() { return this.hovered ?? this.chosen; }
  get threshold() { return (byId("threshold").value / 100) ** 2; } // fine steps where weights are small

  // What stands above the tokens that the chosen head raises and lowers.
  writesName(token) { return this.words.writes(this.tokens.quoted(token)); }

  // --- what the user does

  listen() {
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.choose(null));
    byId("map").addEventListener("pointermove", (event) => this.point(event));
    byId("map").addEventListener("click", (event) => this.point(event)); // of a finger, which does not move first
    byId("map").addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.hover(null, false));
    byId("threshold").addEventListener("input", () => this.show());
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
    return this.weights.of(this.layer, this.head)[placeInMap(query, key)];
  }

  // The current score, and the short name, of a head counted through all layers.
  score(place, column) { return this.scores.of(this.frame, place, column); }

  shortName(place) {
    const [layer, head] = this.weights.layerAndHead(place);
    return `L${this.weights.layers[layer]} H${this.weights.heads[head]}`;
  }

  name(layer, head) {
    const { words, weights } = this;
    if (layer === null) return words.averageOfAll(weights.layers.length * weights.heads.length);
    if (head === null) return `${words.layer(weights.layers[layer])} ${words.averageOf(weights.heads.length)}`;
    return words.headOf(weights.layers[layer], weights.heads[head]);
  }

  // All words that the language changes, and the scale.
  speak() {
    byId("scale-ends").textContent = this.words.scale;
    explainScores(this);
    this.heads.speak();
    const scale = byId("scale").getContext("2d");
    for (let x = 0; x < 256; x++) {
      scale.fillStyle = `rgb(${colourOf(this.colours, (x / 255) ** 2)})`;
      scale.fillRect(x, 0, 1, 10);
    }
  }

  // Everything that the chosen head, the frame or the threshold changes.
  show() {
    const { weights, threshold } = this;
    byId("threshold-shown").textContent = threshold.toFixed(4);
    byId("threshold").setAttribute("aria-valuetext", threshold.toFixed(4));
    byId("head-name").textContent = this.name(this.layer, this.head);
    showScores(this);
    this.heads.mark();
    // all measures before all drawing: the browser lays out the page anew for a measure after a change
    const { sides } = this.heads, room = byId("map-frame").clientWidth;
    this.tokens.measure();
    this.heads.draw(sides);
    const short = weights.labels.map((label) => label.short);
    this.cells = drawLarge(byId("map"), weights.of(this.layer, this.head), short, threshold, this.palette, room);
    this.showToken();
  }

  // Everything that the token under the pointer changes.
  showToken() {
    this.tokens.show();
    const [query, key] = this.pointed ?? [];
    byId("cell").textContent = this.pointed === null ? ""
      : this.words.cell(this.tokens.quoted(query), this.tokens.quoted(key), this.weight(query, key).toFixed(4));
    showWrites(this);
  }
}
