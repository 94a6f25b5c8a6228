// What heads write, as the file holds it.

class PackedWrites {
  constructor(content, tokens, logits, numTokens) {
    Object.assign(this, content, { tokens, logits, numTokens }); // tokens and logits are [2, heads, T, top]: raised, then lowered
  }

  static async read(content, numTokens) {
    const [tokens, logits] = await Promise.all([unpack(content.tokens), unpack(content.logits)]);
    return new PackedWrites(content, new Uint32Array(tokens), new Int16Array(logits), numTokens);
  }

  of(place, token) {
    const half = this.tokens.length / 2;
    return [0, half].map((start) => {
      const at = start + (place * this.numTokens + token) * this.top;
      return Array.from({ length: this.top }, (_, rank) =>
        ({ text: this.texts[this.tokens[at + rank]], logit: this.logits[at + rank] * this.unit }));
    });
  }
}
