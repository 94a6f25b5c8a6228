// The weights of all heads: looked up, averaged, written as CSV.

class Weights {
  // `roots` holds, for every head of every frame in turn, the rows of its lower triangle as whole numbers:
  // the square root of a weight, times `levels`.
  constructor(content, roots) {
    Object.assign(this, content);
    this.roots = roots;
    this.numTokens = content.tokens.length;
    this.numHeads = content.layers.length * content.heads.length;
    this.triangle = (this.numTokens * (this.numTokens + 1)) / 2;
    this.squares = Float64Array.from({ length: content.levels + 1 }, (_, root) => (root / content.levels) ** 2);
    this.show(content.frames ? content.frames.steps.length - 1 : 0);
  }

  static async read(content) {
    const bytes = await unpack(content.weights);
    const roots = content.levels < 256 ? new Uint8Array(bytes) : new Uint16Array(bytes);
    if (content.frames) { // all but the first as differences, modulo 256
      const size = roots.length / content.frames.steps.length;
      for (let at = size; at < roots.length; at++) roots[at] += roots[at - size];
    }
    return new Weights(content, roots);
  }

  // Which frame `of` means; 0 where there is one.
  show(frame) {
    this.frame = frame;
    this.known = new Map();
  }

  // [query, key] of one head, or the mean of a layer (head null) or of all (layer null): Float32Array [T * T].
  of(layer, head) {
    const name = `${layer} ${head}`;
    if (!this.known.has(name)) this.known.set(name, head === null ? this.mean(layer) : this.map(this.place(layer, head)));
    return this.known.get(name);
  }

  // A head counted through all layers; null for a mean.
  place(layer, head) { return layer === null || head === null ? null : layer * this.heads.length + head; }

  map(place) {
    const { numTokens: T, roots, squares } = this;
    const map = new Float32Array(T * T);
    let at = (this.frame * this.numHeads + place) * this.triangle;
    for (let query = 0; query < T; query++)
      for (let key = 0; key <= query; key++) map[query * T + key] = squares[roots[at++]];
    return map;
  }

  // All layers have the same number of heads, so that the mean of all is that of their means.
  mean(layer) {
    const maps = layer === null ? this.layers.map((_, each) => this.of(each, null)) : this.heads.map((_, each) => this.of(layer, each));
    const mean = new Float32Array(this.numTokens ** 2);
    for (const map of maps) for (let cell = 0; cell < mean.length; cell++) mean[cell] += map[cell] / maps.length;
    return mean;
  }

  csv(layer, head) {
    const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
    const numbers = [layer === null ? quoted("mean") : this.layers[layer], head === null ? quoted("mean") : this.heads[head]];
    const map = this.of(layer, head);
    const lines = ["layer,head,query,key,query_token,key_token,weight"];
    for (let query = 0; query < this.numTokens; query++)
      for (let key = 0; key <= query; key++)
        lines.push([...numbers, query, key, quoted(this.tokens[query]), quoted(this.tokens[key]),
          precise(map[query * this.numTokens + key])].join());
    return lines.join("\n") + "\n";
  }
}

// A weight as text that gives it back: six digits that count.
function precise(weight) {
  return String(Number(weight.toPrecision(6)));
}
