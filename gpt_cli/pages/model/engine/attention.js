// The forms of attention: how each makes queries, keys and values; then one causal head, the same in all of them.

// What attention keeps of the tokens it has read: keys and values of each group, the weights of each head. Row t of
// the weights has t + 1 numbers, since no token sees a later one.
class Cache {
  constructor({ numHeads, numGroups, querySize, headSize }, contextLength) {
    this.keys = Array.from({ length: numGroups }, () => new Rows(querySize, contextLength));
    this.values = Array.from({ length: numGroups }, () => new Rows(headSize, contextLength));
    this.weights = Array.from({ length: numHeads }, () => new Rows(1, triangle(contextLength)));
  }
}

// What all forms share: sizes, and which group of keys and values a head uses.
class SelfAttention {
  constructor(config, tensors, name) {
    this.numHeads = config.num_heads;
    this.numGroups = config.attention === "grouped_query" ? config.key_value_heads : config.num_heads;
    this.headSize = config.value_size;
    this.querySize = config.query_size;
    this.scale = config.scale === "none" ? 1 : config.query_size ** -0.5;
    this.projectionLayer = tensors.linear(`${name}.projection_layer`);
  }

  groupOf(head) { return Math.floor((head * this.numGroups) / this.numHeads); }
}

// H heads with matrices of their own; in grouped_query, those of keys and values belong to a group of heads.
class MultiHeadAttention extends SelfAttention {
  constructor(config, tensors, name) {
    super(config, tensors, name);
    const owner = config.attention === "grouped_query" ? "groups" : "heads";
    this.rotates = config.positions === "rope";
    const heads = (count, owner, matrix) => Array.from({ length: count }, (_, head) => tensors.linear(`${name}.${owner}.${head}.${matrix}`));
    this.Wq = heads(this.numHeads, "heads", "Wq");
    this.Wk = heads(this.numGroups, owner, "Wk");
    this.Wv = heads(this.numGroups, owner, "Wv");
  }

  // Of tokens x [T, D] at positions from `start` on: queries of each head, keys and values of each group, all [T, K].
  project(x, numTokens, start) {
    const turned = (matrix) => {
      const found = linear(matrix, x, numTokens);
      return this.rotates ? rotate(found, this.querySize, start) : found;
    };
    return {
      queries: this.Wq.map(turned),
      keys: this.Wk.map(turned),
      values: this.Wv.map((matrix) => linear(matrix, x, numTokens)),
    };
  }
}

// H heads that make keys and values from one latent vector per token. DeepSeek-AI 2024, section 2.1.
class LatentAttention extends SelfAttention {
  constructor(config, tensors, name) {
    super(config, tensors, name);
    this.rotarySize = config.turned_size;
    const found = (matrix) => (tensors.has(`${name}.${matrix}.weight`) ? tensors.linear(`${name}.${matrix}`) : null);
    this.W_DKV = found("W_DKV");
    this.W_KR = found("W_KR");
    this.W_DQ = found("W_DQ");
    const heads = (matrix) => Array.from({ length: this.numHeads }, (_, head) => found(`heads.${head}.${matrix}`));
    this.W_UQ = heads("W_UQ");
    this.W_QR = heads("W_QR");
    this.W_UK = heads("W_UK");
    this.W_UV = heads("W_UV");
  }

  // As in MultiHeadAttention; queries and keys end with their rotary parts.
  project(x, numTokens, start) {
    const latent = linear(this.W_DKV, x, numTokens);
    const source = this.W_DQ ? linear(this.W_DQ, x, numTokens) : x;
    const turned = (matrix, of) => (matrix ? rotate(linear(matrix, of, numTokens), this.rotarySize, start) : null);
    const shared = turned(this.W_KR, x);
    return {
      queries: this.W_UQ.map((up, head) => beside(linear(up, source, numTokens), turned(this.W_QR[head], source), numTokens)),
      keys: this.W_UK.map((up) => beside(linear(up, latent, numTokens), shared, numTokens)),
      values: this.W_UV.map((up) => linear(up, latent, numTokens)),
    };
  }
}

const FORMS = { multi_head: MultiHeadAttention, grouped_query: MultiHeadAttention, latent: LatentAttention };

function attentionOf(config, tensors, name) {
  const Form = FORMS[config.attention];
  if (!Form) throw new Error(`the page does not support the form ${config.attention}`);
  return new Form(config, tensors, name);
}

// The rows of one array and of another side by side: [T, a], [T, b] -> [T, a + b]; the second may be null.
function beside(one, other, numTokens) {
  if (!other) return one;
  const [a, b] = [one.length / numTokens, other.length / numTokens];
  const out = new Float32Array(one.length + other.length);
  for (let token = 0; token < numTokens; token++) {
    out.set(one.subarray(token * a, (token + 1) * a), token * (a + b));
    out.set(other.subarray(token * b, (token + 1) * b), token * (a + b) + a);
  }
  return out;
}

// All heads on new tokens x [T, D], which the cache then has too; a head of `without` gives zeros. -> [T, D]
function mix(attention, x, numTokens, start, cache, without) {
  const { queries, keys, values } = attention.project(x, numTokens, start);
  const { numHeads, headSize } = attention;
  keys.forEach((rows, group) => cache.keys[group].put(rows, start));
  values.forEach((rows, group) => cache.values[group].put(rows, start));
  const out = new Float32Array(numTokens * numHeads * headSize);
  for (let head = 0; head < numHeads; head++) {
    const group = attention.groupOf(head);
    const removed = without.has(head);
    for (let token = 0; token < numTokens; token++) {
      const weights = weightsOf(attention, queries[head], token, cache.keys[group].numbers, start + token);
      cache.weights[head].put(weights, triangle(start + token));
      if (!removed) addValues(weights, cache.values[group].numbers, headSize, out, (token * numHeads + head) * headSize);
    }
  }
  return out;
}

// Where the token at `position` looks: softmax(scores * scale) over the tokens up to it, Float32Array [position + 1].
function weightsOf({ querySize, scale }, queries, token, keys, position) {
  const weights = new Float32Array(position + 1);
  let largest = -Infinity, total = 0;
  for (let key = 0; key <= position; key++) {
    let score = 0;
    for (let place = 0; place < querySize; place++) score += queries[token * querySize + place] * keys[key * querySize + place];
    weights[key] = score * scale;
    if (weights[key] > largest) largest = weights[key];
  }
  for (let key = 0; key <= position; key++) {
    weights[key] = Math.exp(weights[key] - largest);
    total += weights[key];
  }
  for (let key = 0; key <= position; key++) weights[key] /= total;
  return weights;
}

// Adds the weighted sum of the values [weights.length, size] to `out`, from `at` on.
function addValues(weights, values, size, out, at) {
  for (let key = 0; key < weights.length; key++) {
    const weight = weights[key];
    for (let place = 0; place < size; place++) out[at + place] += weight * values[key * size + place];
  }
}
