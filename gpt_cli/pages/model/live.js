// The weights that the model has just computed.

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
