// What a patch recovers: the share of the difference between two texts of one length, in the logits after their last token.

// Where a part is patched, in an order in which a cache serves for all positions of a layer: those behind are read anew each time.
// Heads are patched at all positions together, those of one `layer` at each.
function* placesOf(model, part, numTokens, only) {
  if (only !== null) {
    for (let position = numTokens - 1; position >= 0; position--)
      for (let head = 0; head < model.blocks[only].attention.numHeads; head++) yield { layer: only, head, position };
    return;
  }
  for (let layer = 0; layer < model.blocks.length; layer++)
    if (part === "head") for (let head = 0; head < model.blocks[layer].attention.numHeads; head++) yield { layer, head, position: -1 };
    else for (let position = numTokens - 1; position >= 0; position--) yield { layer, head: -1, position };
}

// Patches a memory's text from that of another one, which has recorded a part: place by place, since the blocks below and the
// tokens before are as they were. Where both texts begin with the same tokens, a patch changes nothing.
class Patcher {
  constructor(model, memory, other, part) {
    Object.assign(this, { model, memory, recordings: other.hooks, part });
    this.numTokens = memory.ids.length;
    this.first = Math.min(commonPrefix(memory.ids, other.ids), this.numTokens - 1);
    this.layer = null;
  }

  // The logits after the last token.
  logits({ layer, head, position }) {
    const { model, memory, numTokens } = this, { valueSize } = model.blocks[layer].attention;
    if (position >= 0 && position < this.first) return memory.logits;
    if (this.layer !== layer) this.caches = memory.caches.map(({ keys, values }, at) => copied(model, at, keys, values, numTokens));
    this.layer = layer;
    const change = { part: this.part, how: "patch", head: head < 0 ? null : head, position: position < 0 ? null : position };
    const changes = new LayerChanges([change], valueSize, null, { recording: this.recordings[layer], length: numTokens });
    const start = Math.max(this.first, position), size = model.config.d_model, count = numTokens - start;
    let x = memory.streams[layer].numbers.slice(start * size, numTokens * size);
    for (let at = layer; at < model.blocks.length; at++)
      x = model.blocks[at].forward(x, count, start, this.caches[at], at === layer ? changes : UNTOUCHED);
    return model.logits(x.subarray((count - 1) * size), 1);
  }
}

// A cache with these keys and values, and no weights, which nothing reads.
function copied(model, layer, keys, values, numTokens) {
  const cache = new Cache(model.blocks[layer].attention, model.config.context_length);
  const copy = (from, to) => from.forEach((rows, group) => to[group].put(rows.numbers.subarray(0, numTokens * rows.width), 0));
  copy(keys, cache.keys);
  copy(values, cache.values);
  return cache;
}
