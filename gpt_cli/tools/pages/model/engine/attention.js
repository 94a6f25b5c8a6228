// The forms of attention: how each makes queries, keys and values; then one causal head, the same in all of them.

// What attention keeps of the tokens it has read: keys and values of each group, the weights of each head. Row t of
// the weights has t + 1 numbers, since no token sees a later one.
class Cache {
  constructor({ numHeads, numGroups, querySize, valueSize }, contextLength) {
    this.keys = Array.from({ length: numGroups }, () => new Rows(querySize, contextLength));
    this.values = Array.from({ length: numGroups }, () => new Rows(valueSize, contextLength));
    this.weights = Array.from({ length: numHeads }, () => new Rows(1, triangle(contextLength)));
  }
}

// What all forms share: sizes, and which group of keys and values a head uses. A token sees `window` tokens, itself included.
class SelfAttention {
  constructor(config, tensors, number) {
    this.numHeads = config.num_heads;
    this.numGroups = config.key_value_heads;
    this.valueSize = config.value_size;
    this.querySize = config.query_size;
    this.frequencies = config.frequencies;
    this.window = config.windows[number] ?? Infinity;
    this.divides = config.scale !== "none";
    this.scale = config.scale === "none" ? 1 : config.query_size ** -0.5;
    this.name = `blocks.${number}.attention`;
    this.projectionLayer = tensors.linear(`${this.name}.projection_layer`);
  }

  groupOf(head) { return Math.floor((head * this.numGroups) / this.numHeads); }
}

// H heads with matrices of their own; in grouped_query, those of keys and values belong to a group of heads.
class MultiHeadAttention extends SelfAttention {
  constructor(config, tensors, number) {
    super(config, tensors, number);
    const { name } = this;
    const owner = config.attention === "grouped_query" ? "groups" : "heads";
    const heads = (count, owner, matrix) => Array.from({ length: count }, (_, head) => tensors.linear(`${name}.${owner}.${head}.${matrix}`));
    this.Wq = heads(this.numHeads, "heads", "Wq");
    this.Wk = heads(this.numGroups, owner, "Wk");
    this.Wv = heads(this.numGroups, owner, "Wv");
    this.epsilon = config.epsilon;
    const norm = (which) => normOf({ ...config, norm: "rmsnorm" }, tensors, `${name}.${which}_norm`);
    [this.queryNorm, this.keyNorm] = config.qk_norm ? [norm("query"), norm("key")] : [null, null];
  }

  // Of tokens x [T, D] at positions from `start` on: queries of each head, keys and values of each group, all [T, K].
  project(x, numTokens, start) {
    const made = (matrices, norm) => matrices.map((matrix) => {
      const found = linear(matrix, x, numTokens);
      return rotate(norm ? norm(found) : found, this.frequencies, this.querySize, start);
    });
    return {
      queries: made(this.Wq, this.queryNorm),
      keys: made(this.Wk, this.keyNorm),
      values: this.Wv.map((matrix) => linear(matrix, x, numTokens)),
    };
  }
}

// H heads that make keys and values from one latent vector per token. DeepSeek-AI 2024, section 2.1.
class LatentAttention extends SelfAttention {
  constructor(config, tensors, number) {
    super(config, tensors, number);
    const { name } = this;
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
    const turned = (matrix, of) => (matrix ? rotate(linear(matrix, of, numTokens), this.frequencies, matrix.weight.rows, start) : null);
    const shared = turned(this.W_KR, x);
    return {
      queries: this.W_UQ.map((up, head) => beside(linear(up, source, numTokens), turned(this.W_QR[head], source), numTokens)),
      keys: this.W_UK.map((up) => beside(linear(up, latent, numTokens), shared, numTokens)),
      values: this.W_UV.map((up) => linear(up, latent, numTokens)),
    };
  }
}

const FORMS = { multi_head: MultiHeadAttention, grouped_query: MultiHeadAttention, latent: LatentAttention };

function attentionOf(config, tensors, number) {
  const Form = FORMS[config.attention];
  if (!Form) throw new Error(`the page does not support the form ${config.attention}`);
  return new Form(config, tensors, number);
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

// All heads on new tokens x [T, D], which the cache then has too; a hook may change what they give. -> [T, D]
function mix(attention, x, numTokens, start, cache, hook) {
  const { queries, keys, values } = attention.project(x, numTokens, start);
  const { numHeads, valueSize } = attention;
  keys.forEach((rows, group) => cache.keys[group].put(rows, start));
  values.forEach((rows, group) => cache.values[group].put(rows, start));
  const out = new Float32Array(numTokens * numHeads * valueSize);
  for (let head = 0; head < numHeads; head++) {
    const group = attention.groupOf(head);
    for (let token = 0; token < numTokens; token++) {
      const weights = weightsOf(attention, queries[head], token, cache.keys[group].numbers, start + token);
      cache.weights[head].put(weights, triangle(start + token));
      addValues(weights, cache.values[group].numbers, valueSize, out, (token * numHeads + head) * valueSize);
    }
  }
  hook.touch("head", out, numTokens, start);
  return out;
}

// Where the token at `position` looks: softmax(scores * scale) over the tokens of its window up to it, and 0 before:
// Float32Array [position + 1].
function weightsOf({ querySize, scale, window }, queries, token, keys, position) {
  const first = Math.max(0, position + 1 - window);
  const weights = new Float32Array(position + 1);
  let largest = -Infinity, total = 0;
  for (let key = first; key <= position; key++) {
    let score = 0;
    for (let place = 0; place < querySize; place++) score += queries[token * querySize + place] * keys[key * querySize + place];
    weights[key] = score * scale;
    if (weights[key] > largest) largest = weights[key];
  }
  for (let key = first; key <= position; key++) {
    weights[key] = Math.exp(weights[key] - largest);
    total += weights[key];
  }
  for (let key = first; key <= position; key++) weights[key] /= total;
  return weights;
}

// Adds the weighted sum of the values [weights.length, size] to `out`, from `at` on.
function addValues(weights, values, size, out, at) {
  for (let key = 0; key < weights.length; key++) {
    const weight = weights[key];
    for (let place = 0; place < size; place++) out[at + place] += weight * values[key * size + place];
  }
}
