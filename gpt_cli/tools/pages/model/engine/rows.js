// Rows of numbers that come one after another, and where a long text begins; the worker and the page use them.

// Rows that grow at their end: [count, width]. There will never be more than `most`.
class Rows {
  constructor(width, most) {
    Object.assign(this, { width, most });
    this.numbers = new Float32Array(0);
  }

  // Puts rows behind the first `count`, over those that were there.
  put(rows, count) {
    const end = count * this.width + rows.length;
    if (end > this.numbers.length) this.grow(end);
    this.numbers.set(rows, count * this.width);
  }

  row(place) { return this.numbers.subarray(place * this.width, (place + 1) * this.width); }

  grow(length) {
    const larger = new Float32Array(Math.max(length, Math.min(2 * this.numbers.length, this.most * this.width)));
    larger.set(this.numbers);
    this.numbers = larger;
  }
}

// The numbers in the first rows of a lower triangle.
function triangle(rows) { return (rows * (rows + 1)) / 2; }

// Where the text begins that a model reads of so many tokens: it moves by half a context, not by each token, so that
// most tokens cost the work of one. gpt sample refills its cache at the same tokens, where positions are absolute.
function windowStart(numTokens, contextLength) {
  const step = contextLength + 1 - Math.max(1, Math.floor(contextLength / 2));
  return step * Math.ceil(Math.max(0, numTokens - contextLength) / step);
}
