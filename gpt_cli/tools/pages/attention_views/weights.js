// The weights of all heads, wherever they come from: looked up, averaged, written as CSV. The map of a head holds the
// rows of its lower triangle, since no token sees a later one.

class Weights {
  // A class derived from this one has `map(place)`, which gives a map, and calls `setText` before it is asked. `layers` and `heads` are
  // the numbers of those that are shown.
  constructor(layers, heads) {
    this.layers = layers;
    this.heads = heads;
    this.numHeads = layers.length * heads.length;
  }

  // The model may have written the last `numGenerated` tokens itself. A label has a whole text and a short one.
  setText(tokens, labels, numGenerated) {
    this.tokens = tokens;
    this.labels = labels;
    this.numTokens = tokens.length;
    this.numGenerated = numGenerated;
  }

  // Which frame `of` means: a moment of a training, or the number of an answer of the model.
  show(frame) {
    this.frame = frame;
    this.known = new Map();
  }

  // The map of one head, or the mean of a layer (head null) or of all (layer null): Float32Array [T (T + 1) / 2].
  of(layer, head) {
    const name = `${layer} ${head}`;
    if (!this.known.has(name)) this.known.set(name, head === null ? this.mean(layer) : this.map(this.place(layer, head)));
    return this.known.get(name);
  }

  // A head counted through all layers; null for a mean.
  place(layer, head) { return layer === null || head === null ? null : layer * this.heads.length + head; }

  // The places of a layer and a head, from one counted through all layers.
  layerAndHead(place) { return [Math.floor(place / this.heads.length), place % this.heads.length]; }

  // All layers have the same number of heads, so that the mean of all is that of their means.
  mean(layer) {
    const maps = layer === null ? this.layers.map((_, each) => this.of(each, null)) : this.heads.map((_, each) => this.of(layer, each));
    return meanOf(maps);
  }

  csv(layer, head) {
    // as inert_cell of token_labels.py: nothing that a spreadsheet would compute
    const inert = (text) => (/^[\t\r\n]*[=+\-@＝＋－＠]./su.test(text) ? `'${text}` : text);
    const quoted = (text) => `"${inert(text).replaceAll('"', '""')}"`;
    const numbers = [layer === null ? quoted("mean") : this.layers[layer], head === null ? quoted("mean") : this.heads[head]];
    const map = this.of(layer, head);
    const lines = ["layer,head,query,key,query_token,key_token,weight"];
    for (let query = 0; query < this.numTokens; query++)
      for (let key = 0; key <= query; key++)
        lines.push([...numbers, query, key, quoted(this.tokens[query]), quoted(this.tokens[key]),
          precise(map[placeInMap(query, key)])].join());
    return lines.join("\n") + "\n";
  }
}

// The mean of maps, or of some rows of each.
function meanOf(maps) {
  const mean = new Float32Array(maps[0].length);
  for (const map of maps) for (let cell = 0; cell < mean.length; cell++) mean[cell] += map[cell] / maps.length;
  return mean;
}

// The place of a weight in a map.
function placeInMap(query, key) { return (query * (query + 1)) / 2 + key; }

// A weight as text that gives it back: six digits that count.
function precise(weight) {
  return String(Number(weight.toPrecision(6)));
}
