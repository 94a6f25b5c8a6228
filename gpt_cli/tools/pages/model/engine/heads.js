// What heads do, as gpt_cli/attention_maps computes it: where they look, in numbers, and which tokens they raise and lower.

const NUM_PATTERNS = 6;

// The numbers of one token that looks, in the order of PATTERNS in head_metrics.py; `weights` [place + 1] are of ids up to it.
function patternsOf(weights, ids, place) {
  let entropy = 0, distance = 0, equal = 0, found = false;
  for (let key = 0; key <= place; key++) {
    const weight = weights[key];
    if (weight > 0) entropy -= weight * Math.log(weight);
    distance += weight * (place - key);
    if (key === place || ids[key] !== ids[place]) continue;
    equal += weight;
    found = true;
  }
  return [entropy, distance, weights[0], weights[place - 1], weights[place], found ? equal : NaN];
}

// The means of such numbers over tokens [T, NUM_PATTERNS], NaN where there are none. The first token looks at itself
// alone, whatever a head does, so it does not count.
function meanPatterns(rows, numTokens) {
  return Array.from({ length: NUM_PATTERNS }, (_, pattern) => {
    let sum = 0, count = 0;
    for (let place = 1; place < numTokens; place++) {
      const number = rows[place * NUM_PATTERNS + pattern];
      if (Number.isNaN(number)) continue;
      sum += number;
      count += 1;
    }
    return sum / count;
  });
}

// What one head adds to the logits after the token at `query` of a text that the memory has read, above their mean: [V].
// Norms keep the scale that they have there, as in logit_attribution.py.
function headWrites(model, memory, { layer, head, query }) {
  const { attention } = model.blocks[layer], { valueSize } = attention;
  const cache = memory.caches[layer];
  const alone = new Float32Array(attention.numHeads * valueSize); // what all heads give, were the others silent
  const weights = cache.weights[head].numbers.subarray(triangle(query), triangle(query + 1));
  addValues(weights, cache.values[attention.groupOf(head)].numbers, valueSize, alone, head * valueSize);
  const unbiased = ({ weight }, x) => linear({ weight, bias: null }, x, 1);
  const read = (number) => [memory.streams[number].row(query), 1, query, memory.caches[number], memory.hooks[number]];
  let written = unbiased(attention.projectionLayer, alone);
  for (const [number, block] of model.blocks.entries()) {
    if (number < layer || block.preNorm) continue;
    const attended = block.attend(...read(number)), middle = block.norm_1(attended);
    written = block.norm_1.ofPart(written, attended);
    written = block.norm_2.ofPart(written, block.feed(middle, middle, 1, query, memory.hooks[number]));
  }
  const last = model.blocks.length - 1;
  const stream = model.blocks[last].forward(...read(last));
  const logits = unbiased(model.outputLayer, model.finalNorm.ofPart(written, stream));
  const mean = logits.reduce((sum, logit) => sum + logit, 0) / logits.length;
  return logits.map((logit) => logit - mean);
}
