// The weights that the model has just computed.

class LiveWeights extends Weights {
  constructor({ num_layers, num_heads }) {
    super([...Array(num_layers).keys()], [...Array(num_heads).keys()]);
    this.count = 0;
  }

  // `triangles` holds the rows of the lower triangle of each head in turn.
  take(triangles, tokens, numGenerated) {
    this.setText(tokens, tokens.map(labelsOf), numGenerated);
    this.triangles = triangles;
    this.triangle = triangles.length / this.numHeads;
    this.show(this.count += 1);
  }

  map(place) { return this.triangles.subarray(place * this.triangle, (place + 1) * this.triangle); }
}
