// The weights of all heads: read from the page, looked up, averaged, written as CSV.

async function readWeights() {
  const content = JSON.parse(document.getElementById("content").textContent);
  const packed = Uint8Array.from(atob(content.weights), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = await new Response(unpacked).arrayBuffer();
  return new Weights(content, content.levels < 256 ? new Uint8Array(bytes) : new Uint16Array(bytes));
}

class Weights {
  // `roots` holds, for every head in turn, the rows of its lower triangle as whole numbers:
  // the square root of a weight, times `levels`.
  constructor(content, roots) {
    Object.assign(this, content);
    this.roots = roots;
    this.numTokens = content.tokens.length;
    this.triangle = (this.numTokens * (this.numTokens + 1)) / 2;
    this.known = new Map();
  }

  // [query, key] of one head, or the mean of a layer (head null) or of all (layer null): Float32Array [T * T].
  of(layer, head) {
    const name = `${layer} ${head}`;
    if (!this.known.has(name)) this.known.set(name, this.mean(this.chosen(layer, head)));
    return this.known.get(name);
  }

  // The places of the heads that a view shows, counted through all layers.
  chosen(layer, head) {
    const all = [...Array(this.layers.length * this.heads.length).keys()];
    return all.filter((place) =>
      (layer === null || Math.floor(place / this.heads.length) === layer) &&
      (head === null || place % this.heads.length === head));
  }

  mean(places) {
    const T = this.numTokens;
    const sum = new Float64Array(T * T);
    for (const place of places) {
      let at = place * this.triangle;
      for (let query = 0; query < T; query++)
        for (let key = 0; key <= query; key++) sum[query * T + key] += (this.roots[at++] / this.levels) ** 2;
    }
    return Float32Array.from(sum, (value) => value / places.length);
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
