// What the model has just computed: the weights of its heads, their scores, and what one of them writes.

class LiveWeights extends Weights {
  constructor({ num_layers, num_heads, context_length }) {
    super([...Array(num_layers).keys()], [...Array(num_heads).keys()]);
    const maps = (count) => Array.from({ length: count }, () => new Rows(1, triangle(context_length)));
    this.maps = maps(this.numHeads);
    this.means = maps(num_layers + 1); // of the heads of each layer, then of all
    this.count = 0;
  }

  // `attention` holds for each head in turn the rows of the tokens from `first` on; those before stay what they are.
  take({ first, attention }, tokens, numGenerated) {
    this.setText(tokens, tokens.map(labelsOf), numGenerated);
    const size = attention.length / this.numHeads, { length } = this.heads;
    const put = (maps, rows) => maps.forEach((map, place) => map.put(rows[place], triangle(first)));
    const rows = this.maps.map((_, place) => attention.subarray(place * size, (place + 1) * size));
    const means = this.layers.map((_, layer) => meanOf(rows.slice(layer * length, (layer + 1) * length)));
    put(this.maps, rows);
    put(this.means, [...means, meanOf(means)]);
    this.show(this.count += 1);
  }

  map(place) { return this.shown(this.maps[place]); }

  mean(layer) { return this.shown(this.means[layer ?? this.layers.length]); }

  shown({ numbers }) { return numbers.subarray(0, triangle(this.numTokens)); }
}

// Scores of the heads on the text, and in the last column their induction, which the page has.
class LiveScores extends Scores {
  constructor(content, induction, numHeads) {
    const width = content.columns.length;
    super(content, new Float32Array(numHeads * width), numHeads);
    induction.forEach((score, place) => { this.numbers[(place + 1) * width - 1] = score; });
  }

  // `patterns` [heads, columns - 1] of the text that was just read.
  take(patterns, numTokens) {
    this.numTokens = numTokens;
    const width = this.columns.length;
    for (let place = 0; place < this.numHeads; place++)
      this.numbers.set(patterns.subarray(place * (width - 1), (place + 1) * (width - 1)), place * width);
  }

  of(_frame, place, column) { return super.of(0, place, column); }

  get vary() { return true; }

  rolesFound() { return this.roles.map(([column]) => column); }
}

const NUM_WRITTEN = 5;

// What heads write, asked of the engine: one question at a time, the latest, and none while more is to come, or while
// nobody sees the answer, since a key should not wait for it.
class LiveWrites {
  constructor(page) {
    this.page = page;
    this.wanted = this.known = { answer: null };
    this.asking = this.inView = false;
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.inView = isIntersecting;
      if (page.answer) showWrites(page.views);
    }).observe(byId("writes"));
  }

  of(place, token) {
    this.wanted = { answer: this.page.answer, place, token };
    if (this.isKnown) return this.known.found;
    if (this.inView && !this.asking && !this.page.stale && !this.page.playing) this.page.busyWith(this.ask());
    return null;
  }

  get isKnown() { return ["answer", "place", "token"].every((name) => this.known[name] === this.wanted[name]); }

  async ask() {
    const { page, wanted } = this;
    const { ids, changes, other } = wanted.answer;
    const [layer, head] = page.views.weights.layerAndHead(wanted.place);
    const asked = { ids, changes, other, layer, head, query: wanted.token, count: NUM_WRITTEN };
    let found = [[], []]; // also where it fails, so that it does not ask again
    this.asking = true;
    try {
      found = await page.engine.call("writes", asked);
    } catch (error) {
      page.fail(error);
    }
    this.asking = false;
    this.known = { ...wanted, found };
    showWrites(page.views);
  }
}
