// What is put in the place of activations while the model reads, as hooks of PyTorch would put it there.
//
// A change is {part, layer, head, position, how}. A part is what a head gives before the projection ("head"), what attention or the
// feed-forward part adds to the stream ("attention", "feed_forward"), or the stream after the block ("residual"). Head is null
// where the part has none, position where all are meant. `how` is "zero" (a block whose stream is zero is skipped), "mean" (the mean over
// those tokens of the text that another follows, as gpt heads --ablate mean takes it) or "patch" (from another text, at positions
// that both have). Means and patches are of the unchanged model.

// A layer that nothing changes.
const UNTOUCHED = { touch() {} };

// Keeps what some parts of a layer give.
class Recording {
  constructor(parts, contextLength) {
    this.rows = new Map(parts.map((part) => [part, null]));
    this.contextLength = contextLength;
  }

  touch(part, x, numTokens, start) {
    if (!this.rows.has(part)) return;
    if (!this.rows.get(part)) this.rows.set(part, new Rows(x.length / numTokens, this.contextLength));
    this.rows.get(part).put(x, start);
  }
}

// The changes of one layer. `own` and `other` are recordings of it on the text and on the other one, of so many tokens; null where no
// change needs them.
class LayerChanges {
  constructor(changes, valueSize, own, other) {
    this.valueSize = valueSize;
    this.changes = changes.map((change) => ({ ...change, value: LayerChanges.valueOf(change, own, other) }));
  }

  // What comes in the place of a row of x at a place, null for what it is; `before` is the row of the stream into the block.
  static valueOf({ part, how }, own, other) {
    if (how === "zero") return (_, row, before) => before ?? new Float32Array(row.length);
    const { recording, length } = how === "mean" ? own : other;
    const rows = recording.rows.get(part);
    const kept = rows.numbers.slice(0, length * rows.width); // the recording may go on to another text
    if (how === "patch") return (place) => (place < length ? kept.subarray(place * rows.width, (place + 1) * rows.width) : null);
    const mean = meanRow(rows, Math.max(1, length - 1));
    return () => mean;
  }

  // Rows x [T, size] of a part, of tokens from `start` on, in place.
  touch(part, x, numTokens, start, before = null) {
    const size = x.length / numTokens;
    for (const { part: of, head, position, value } of this.changes) {
      if (of !== part) continue;
      const [from, to] = head === null ? [0, size] : [head * this.valueSize, (head + 1) * this.valueSize];
      for (let token = 0; token < numTokens; token++) {
        if (position !== null && position !== start + token) continue;
        const row = x.subarray(token * size, (token + 1) * size);
        const found = value(start + token, row, before?.subarray(token * size, (token + 1) * size));
        if (found) row.set(found.subarray(from, to), from);
      }
    }
  }
}

// The mean of the first rows.
function meanRow(rows, count) {
  const sums = new Float64Array(rows.width);
  for (let place = 0; place < count; place++) rows.row(place).forEach((number, at) => { sums[at] += number; });
  return Float32Array.from(sums, (sum) => sum / count);
}
