// One head at one token, step by step: the steps and formulas of gpt_cli/tools/explain.

// Steps in order: {name, formula, shape, numbers, rows, columns, beside}. Rows and columns are names of tokens; columns
// is empty where they are numbered. Steps that are `beside` others have a number for each of the same columns.
class Steps {
  constructor(names, query) { Object.assign(this, { names, query, found: [] }); }

  get numTokens() { return this.names.length; }

  // Numbers of all tokens: [T, width].
  all(name, formula, numbers) { this.add(name, formula, numbers, this.names); }

  // Those of the token that looks, from numbers of all.
  one(name, formula, numbers) { this.own(name, formula, this.rowOf(numbers).slice()); }

  // Those of the token that looks: [1, width].
  own(name, formula, numbers) { this.add(name, formula, numbers, [this.names[this.query]]); }

  // The row of the token that looks, from numbers of all.
  rowOf(numbers) {
    const width = numbers.length / this.numTokens;
    return numbers.subarray(this.query * width, (this.query + 1) * width);
  }

  // A number for each token that is looked at: [1, T].
  looking(name, formula, numbers) { this.add(name, formula, numbers, [this.names[this.query]], this.names); }

  add(name, formula, numbers, rows, columns = []) {
    const shape = [rows.length, numbers.length / rows.length];
    this.found.push({ name, formula, shape, numbers, rows, columns, beside: columns.length > 0 });
  }
}

// The memory has read the ids.
function explainHead(model, ids, names, { memory, layer, head, query }) {
  const steps = new Steps(names, query);
  const block = model.blocks[layer], { attention } = block;
  const stream = streamInto(model, ids, layer, memory, steps);
  const seen = block.attentionInput(stream);
  const source = block.preNorm ? "a" : "x";
  if (block.preNorm) steps.all("normalised", `a = ${normFormula(model.config)}`, seen);
  const { product, root } = EXPLAINED.get(attention.constructor)(attention, seen, source, head, steps);
  const { queries } = attention.project(steps.rowOf(seen), 1, query);
  const { keys, values } = memory.caches[layer];
  const group = attention.groupOf(head);
  const weights = looks(attention, queries[head], keys[group].numbers, product, root, steps);
  mixes(weights, values[group].numbers.subarray(0, ids.length * attention.valueSize), steps);
  joins(model, block, stream, seen, memory, layer, steps);
  return steps.found;
}

// The residual stream into a layer [T, D], with the parts that it begins with.
function streamInto(model, ids, layer, memory, steps) {
  const { config, tokenEmbedding, ngramEmbedding } = model;
  const rows = (found) => Float32Array.from(ids.flatMap((id, place) => [...found(id, place)]));
  const embedded = rows((id) => tokenEmbedding.row(id));
  steps.all("token_embedding", "E[id]", embedded);
  const parts = [ngramEmbedding ? "e" : "E[id]"];
  if (ngramEmbedding) {
    const tables = ngramEmbedding.tables.map((_, number) => `N${number + 2}`).join(" + ");
    steps.all("ngram_embedding", tables, ngramEmbedding.added(ids, 0));
    const formula = `e = (z - mean(z)) / √(var(z) + 1e-05), z = E[id] + ${tables}`;
    steps.all("ngram_normalised", formula, ngramEmbedding.forward(embedded, ids, 0));
  }
  if (config.positions === "learned" || config.positions === "sinusoidal") {
    steps.all("position_embedding", "P[t]", rows((_, place) => model.position(place)));
    parts.push("P[t]");
  }
  const x = memory.streams[layer].numbers.slice(0, ids.length * config.d_model);
  steps.all("stream", layer ? `x = block_${layer - 1}(...)` : `x = ${parts.join(" + ")}`, x);
  return x;
}

// Queries, keys and values of a head that reads `seen`, which formulas call `source`: the formula of scores, and their
// divisor in words.
function projections(attention, seen, source, head, steps) {
  const { numTokens } = steps, { frequencies, queryNorm, keyNorm, epsilon } = attention;
  const group = attention.groupOf(head);
  const matrices = { q: attention.Wq[head], k: attention.Wk[group], v: attention.Wv[group] };
  const formula = (letter) => `${letter} = W${letter} ${source}${matrices[letter].bias ? ` + b${letter}` : ""}`;
  let [queries, keys, values] = Object.values(matrices).map((matrix) => linear(matrix, seen, numTokens));
  steps.one("queries", formula("q"), queries);
  steps.all("keys", formula("k"), keys);
  let [q, k] = ["q", "k"];
  if (queryNorm) {
    [queries, keys, q, k] = [queryNorm(queries), keyNorm(keys), "q̂", "k̂"];
    const formula = normFormula({ norm: "rmsnorm", epsilon });
    steps.one("normalised_queries", `q̂ = ${formula.replaceAll("x", "q")}`, queries);
    steps.all("normalised_keys", `k̂ = ${formula.replaceAll("x", "k")}`, keys);
  }
  if (frequencies.length) [q, k] = turned(q, k, queries, keys, frequencies, steps);
  steps.all("values", formula("v"), values);
  return { product: `s = ${q} · ${k}`, root: "√K" };
}

function latentProjections(attention, seen, source, head, steps) {
  const { numTokens } = steps, { W_DKV, W_DQ, W_KR, frequencies } = attention;
  const [W_UQ, W_QR, W_UK, W_UV] = ["W_UQ", "W_QR", "W_UK", "W_UV"].map((name) => attention[name][head]);
  const latent = linear(W_DKV, seen, numTokens);
  steps.all("latent", `c = W_DKV ${source}`, latent);
  const from = W_DQ ? "d" : source;
  const looked = W_DQ ? linear(W_DQ, seen, numTokens) : seen;
  if (W_DQ) steps.one("query_latent", `d = W_DQ ${source}`, looked);
  steps.one("queries", `q = W_UQ ${from}`, linear(W_UQ, looked, numTokens));
  steps.all("keys", "k = W_UK c", linear(W_UK, latent, numTokens));
  if (W_QR) {
    const queries = linear(W_QR, looked, numTokens), keys = linear(W_KR, seen, numTokens);
    steps.one("rotary_queries", `r = W_QR ${from}`, queries);
    steps.all("rotary_keys", `u = W_KR ${source}`, keys);
    turned("r", "u", queries, keys, frequencies, steps);
  }
  steps.all("values", "v = W_UV c", linear(W_UV, latent, numTokens));
  return W_QR ? { product: "s = q · k + r′ · u′", root: "√(K + R)" } : { product: "s = q · k", root: "√K" };
}

// Of each form by itself: one that is derived from another may compute something else.
const EXPLAINED = new Map([[MultiHeadAttention, projections], [LatentAttention, latentProjections]]);

// What rope makes of queries and keys, or of their first R numbers, and what formulas call the two then.
function turned(query, key, queries, keys, frequencies, steps) {
  const size = keys.length / steps.numTokens, part = 2 * frequencies.length < size;
  const formula = (name) => {
    const found = `${name}${part ? "[:R]" : ""} cos(t θ) + (-${name}₂, ${name}₁) sin(t θ)`;
    return `${name[0]}′ = ${part ? `(${found}, ${name}[R:])` : found}`;
  };
  steps.one("rotated_queries", formula(query), rotate(queries.slice(), frequencies, size, 0));
  steps.all("rotated_keys", formula(key), rotate(keys.slice(), frequencies, size, 0));
  return ["q′", "k′"];
}

// From scores of a query [K] and all keys [T, K] to weights [T], of which those after the query are zero.
function looks({ querySize, scale, divides, window }, own, keys, product, root, steps) {
  const { numTokens, query } = steps;
  const scores = Float64Array.from({ length: numTokens }, (_, key) => {
    let score = 0;
    for (let place = 0; place < querySize; place++) score += own[place] * keys[key * querySize + place];
    return score;
  });
  steps.looking("scores", product, scores);
  const scaled = scores.map((score) => score * scale);
  const term = divides ? `s / ${root}` : "s";
  if (divides) steps.looking("divided", `${term} = s / ${Number((1 / scale).toPrecision(4))}`, scaled);
  const masked = scaled.map((score, key) => (key > query || key <= query - window ? -Infinity : score));
  steps.looking("masked", `m = ${term}; j > i${window < Infinity ? `, j ≤ i - ${window}` : ""}: -∞`, masked);
  const total = logSumExp(masked);
  const weights = masked.map((score) => Math.exp(score - total));
  steps.looking("weights", "w = exp(m) / Σ exp(m)", weights);
  return weights;
}

// The weighted sum of the values [T, K], and its parts.
function mixes(weights, values, steps) {
  const size = values.length / weights.length;
  const parts = Float64Array.from(values, (value, at) => weights[Math.floor(at / size)] * value);
  steps.all("weighted_values", "wⱼ vⱼ", parts);
  const output = new Float64Array(size);
  for (let at = 0; at < parts.length; at++) output[at % size] += parts[at];
  steps.own("head_output", "h = Σ wⱼ vⱼ", output);
}

// From the outputs of all heads back to the residual stream.
function joins(model, block, stream, seen, memory, layer, steps) {
  const { attention } = block;
  const { numHeads, projectionLayer } = attention;
  const heads = numHeads === 1 ? "(h0)" : numHeads === 2 ? "(h0, h1)" : `(h0, ..., h${numHeads - 1})`;
  const mixed = mix(attention, steps.rowOf(seen), 1, steps.query, memory.caches[layer], memory.hooks[layer]);
  const projected = linear(projectionLayer, mixed, 1);
  memory.hooks[layer].touch("attention", projected, 1, steps.query);
  const added = sum(steps.rowOf(stream), projected);
  steps.own("concatenated", `hs = ${heads}`, mixed);
  steps.own("projected", `o = projection_layer hs${projectionLayer.bias ? " + b" : ""}`, projected);
  steps.own("residual", "y = x + o", added);
  if (!block.preNorm) steps.own("normalised_after", normFormula(model.config).replaceAll("x", "y"), block.norm_1(added));
}

function normFormula({ norm, epsilon, bias }) {
  const number = Number(epsilon.toPrecision(6)); // and as Python writes it
  const added = number < 1e-4 ? number.toExponential().replace(/-(\d)$/, "-0$1") : number;
  if (norm === "rmsnorm") return `x / √(mean(x²) + ${added}) · g`;
  return `(x - mean(x)) / √(var(x) + ${added}) · g${bias ? " + b" : ""}`;
}
