// What each layer would already predict: a grid of layers and tokens.

class LensView {
  constructor() { this.grid = new Grid(byId("lens-grid")); }

  // `lens` has the numbers of its `layers`, and of(row, token), null or {text, chance, divergence}, with the {loss, rank, probability} of the true
  // next token, null where that is unknown, and perhaps the likeliest tokens as `top`: [{text, chance}].
  show(lens, labels, words) {
    this.grid.show({
      label: words.lensLabel,
      rows: lens.layers.map((layer) => `L${layer}`),
      headers: [labels.map(({ text }) => ({ text: marked(text) }))],
      cell: (row, token) => {
        const found = lens.of(row, token);
        return found && { text: marked(found.text), fill: shadeOf("kind", 0.5 * found.chance) };
      },
      say: (row, token) => {
        const found = lens.of(row, token);
        if (!found) return [];
        const { text, chance, divergence, loss, rank, probability, top } = found, next = labels[token + 1];
        return [
          words.lensPredicts(lens.layers[row], quoted(labels[token].text), token, quoted(text), chance.toFixed(4)),
          ...(loss === null || !next ? [] : [words.lensTrue(quoted(next.text), rank.toLocaleString("en"), probability.toFixed(4), loss.toFixed(4))]),
          words.lensFar(divergence.toFixed(4)),
          ...(top ? [words.lensTop + top.map((one) => `${quoted(one.text)} ${one.chance.toFixed(4)}`).join(" · ")] : []),
        ];
      },
    });
  }
}

// A lens as the file holds it, of each frame of a film.
class PackedLens {
  constructor({ layers, texts }, tokens, numbers, numTokens) {
    Object.assign(this, { layers, texts, tokens, numbers, numTokens, frame: 0 });
  }

  static async read(content, numTokens) {
    const [tokens, numbers] = await Promise.all([unpack(content.tokens), unpack(content.numbers)]);
    return new PackedLens(content, new Uint32Array(tokens), new Float32Array(numbers), numTokens);
  }

  of(row, token) {
    const size = this.layers.length * this.numTokens, at = row * this.numTokens + token;
    const [chance, divergence, loss, rank, probability] = [0, 1, 2, 3, 4].map((kind) => this.numbers[(5 * this.frame + kind) * size + at]);
    const known = !Number.isNaN(loss);
    return { text: this.texts[this.tokens[this.frame * size + at]], chance, divergence, loss: known ? loss : null, rank, probability };
  }
}
