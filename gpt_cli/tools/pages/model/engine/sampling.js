// Which token comes next: functions of logits and parameters, as gpt_cli/sampling/next_token.py has them.

// The chance of each token [V], in numbers of 64 bits, which add up to 1. A temperature of 0 gives the likeliest token
// chance 1; topK 0 or null and topP 1 or null change nothing. `order` is that of the ids by their logits, if it is known.
function probabilities(logits, { temperature = 1, topK = null, topP = null } = {}, order = null) {
  const best = logits.reduce((found, logit, id) => (logit > logits[found] ? id : found), 0);
  const chances = new Float64Array(logits.length);
  if (temperature === 0) {
    chances[best] = 1;
    return chances;
  }
  // relative to the best, so that no temperature makes infinity minus infinity
  for (let id = 0; id < chances.length; id++) chances[id] = Math.exp((logits[id] - logits[best]) / temperature);
  scale(chances);
  if (!topK && (topP === null || topP >= 1)) return chances;
  order ??= ranked(logits);
  if (topK) {
    for (const id of order.subarray(topK)) chances[id] = 0;
    scale(chances);
  }
  if (topP !== null && topP < 1) {
    let running = 0;
    for (const [place, id] of order.entries()) {
      running += chances[id];
      if (place > 0 && running - chances[id] >= topP) chances[id] = 0; // the first one stays
    }
  }
  return scale(chances);
}

// Ids from the likeliest on; of equal ones the first comes first.
function ranked(logits) { return Uint32Array.from(logits.keys()).sort((one, other) => logits[other] - logits[one]); }

// The same in place, divided by their sum.
function scale(chances) {
  const sum = chances.reduce((total, chance) => total + chance, 0);
  for (let id = 0; id < chances.length; id++) chances[id] /= sum;
  return chances;
}

// The token at which the running sum of chances passes a uniform number.
function choose(chances, uniform) {
  let sum = 0;
  const running = chances.map((chance) => (sum += chance));
  // the last sum may be a hair under 1, so the number is scaled to it
  return running.findIndex((passed) => passed > uniform * sum);
}

// The likeliest `count` tokens as { id, probability, before }, where `before` is the chance without parameters.
function likeliest(logits, parameters, count) {
  const order = ranked(logits);
  const [chances, before] = [probabilities(logits, parameters, order), probabilities(logits)];
  return Array.from(order.subarray(0, count), (id) => ({ id, probability: chances[id], before: before[id] }));
}
