// The weights that the file holds, as whole numbers.

class PackedWeights extends Weights {
  // `roots` holds, for every head of every frame in turn, the rows of its lower triangle as whole numbers:
  // the square root of a weight, times `levels`.
  constructor(content, roots) {
    super(content.layers, content.heads);
    const { levels, frames, generated, colours, origin } = content;
    Object.assign(this, { levels, frames, generated, colours, origin, roots });
    this.setText(content.tokens, content.labels, generated.length);
    this.triangle = placeInMap(this.numTokens, 0);
    this.squares = Float64Array.from({ length: levels + 1 }, (_, root) => (root / levels) ** 2);
    this.show(frames ? frames.steps.length - 1 : 0);
  }

  static async read(content) {
    const bytes = await unpack(content.weights);
    const roots = content.levels < 256 ? new Uint8Array(bytes) : new Uint16Array(bytes);
    if (content.frames) { // all but the first as differences, modulo 256
      const size = roots.length / content.frames.steps.length;
      for (let at = size; at < roots.length; at++) roots[at] += roots[at - size];
    }
    return new PackedWeights(content, roots);
  }

  map(place) {
    const { roots, squares, triangle } = this;
    const first = (this.frame * this.numHeads + place) * triangle;
    const map = new Float32Array(triangle);
    for (let cell = 0; cell < triangle; cell++) map[cell] = squares[roots[first + cell]];
    return map;
  }
}
