// A text as a model reads it, token by token, and what it keeps of it.

const _AT_ONCE = 8; // tokens that are read together: fewer take longer, more keep the worker from newer messages

// What a model knows of a text it has read, with a hook for each layer.
class Memory {
  constructor(model, hooks = model.blocks.map(() => UNTOUCHED)) {
    Object.assign(this, { model, hooks });
    const { context_length: contextLength } = model.config;
    this.caches = model.blocks.map(({ attention }) => new Cache(attention, contextLength));
    this.streams = [...model.blocks, null].map(() => new Rows(model.config.d_model, contextLength)); // into each block, and out of the last
    this.weights = this.caches.flatMap(({ weights }) => weights); // of each head of each layer in turn
    this.patterns = this.weights.map(() => new Rows(NUM_PATTERNS, contextLength));
    this.ids = [];
    this.surprisals = new Rows(1, contextLength); // in nats; the first token has none
    this.logits = null; // of the token after the last
  }

  // Reads ids, as many anew as differ from what was read before. Between pieces it yields how many are read: whoever
  // goes on no further leaves a memory of these.
  *read(ids) {
    let start = commonPrefix(this.ids, ids);
    // the logits after earlier tokens are gone, so their last one is read again
    if (start < this.ids.length || !this.logits) start = Math.max(0, start - 1);
    if (start === ids.length) return;
    const { model } = this;
    if (start === 0) this.surprisals.put([NaN], 0);
    else if (start === this.ids.length) this.surprise(ids, start, this.logits);
    for (let end; start < ids.length; start = end) {
      end = Math.min(ids.length, start + _AT_ONCE);
      this.ids = []; // where an error ends this, all is read anew
      const logits = model.logits(model.forward(ids.slice(0, end), start, this), end - start);
      this.describe(ids, start, end);
      for (let place = start; place < end; place++) {
        this.logits = logits.slice((place - start) * model.vocabSize, (place - start + 1) * model.vocabSize);
        if (place + 1 < ids.length) this.surprise(ids, place + 1, this.logits);
      }
      if (end === ids.length && !this.logits.every(Number.isFinite)) throw new Refusal("notFinite");
      this.ids = ids.slice(0, end);
      if (end < ids.length) yield end;
    }
  }

  // Keeps how surprising the token at a place is, given the logits after the token before it.
  surprise(ids, place, logits) { this.surprisals.put([logSumExp(logits) - logits[ids[place]]], place); }

  // Keeps where the tokens from `start` to `end` look, in numbers.
  describe(ids, start, end) {
    for (const [number, { numbers }] of this.weights.entries())
      for (let place = start; place < end; place++)
        this.patterns[number].put(patternsOf(numbers.subarray(triangle(place), triangle(place + 1)), ids, place), place);
  }

  // The means of these numbers for each head: [L, H, NUM_PATTERNS].
  meanPatterns() {
    return Float32Array.from(this.patterns.flatMap(({ numbers }) => meanPatterns(numbers, this.ids.length)));
  }

  // The weights of every head [L, H, ...]: the rows of each lower triangle, of the tokens from `first` on.
  attention(first) {
    const [start, end] = [triangle(first), triangle(this.ids.length)];
    const found = new Float32Array(this.weights.length * (end - start));
    this.weights.forEach((weights, place) => found.set(weights.numbers.subarray(start, end), place * (end - start)));
    return found;
  }
}

function commonPrefix(one, other) {
  const end = one.findIndex((id, place) => id !== other[place]);
  return end < 0 ? one.length : end;
}
