// What each layer would already predict, as gpt_cli/tools/interpret/lens computes it: final norm and output layer on the stream after it.

// Of each layer at one token of a text that the memory has read: {top, loss, rank, probability, divergence}. `top` holds the likeliest
// ids, {id, chance}; loss, rank and probability are of the next token, null for the last one; the divergence is from the last layer.
function lensAt(model, memory, place, count) {
  const { length } = model.blocks, { vocabSize } = model, size = model.config.d_model;
  const streams = new Float32Array(length * size);
  for (let layer = 0; layer < length; layer++) streams.set(memory.streams[layer + 1].row(place), layer * size);
  const logits = model.logits(streams, length);
  const logChances = Array.from({ length }, (_, layer) => {
    const row = logits.subarray(layer * vocabSize, (layer + 1) * vocabSize), all = logSumExp(row);
    return Float64Array.from(row, (logit) => logit - all);
  });
  const next = memory.ids[place + 1];
  return logChances.map((found) => {
    const known = next === undefined ? null : found[next];
    let rank = 1, divergence = 0;
    logChances[length - 1].forEach((last, id) => {
      divergence += Math.exp(last) * (last - found[id]);
      if (known !== null && found[id] > known) rank += 1;
    });
    const top = highest(found, count).map((id) => ({ id, chance: Math.exp(found[id]) }));
    const of = known === null ? { loss: null, rank: null, probability: null } : { loss: -known, rank, probability: Math.exp(known) };
    return { ...of, top, divergence: Math.max(0, divergence) };
  });
}

// The places of the highest numbers, the highest first; of equal ones the first comes first.
function highest(numbers, count) {
  const found = [];
  for (let place = 0; place < numbers.length; place++) {
    if (found.length === count && numbers[place] <= numbers[found[count - 1]]) continue;
    let at = found.length;
    while (at > 0 && numbers[place] > numbers[found[at - 1]]) at -= 1;
    found.splice(at, 0, place);
    if (found.length > count) found.pop();
  }
  return found;
}
