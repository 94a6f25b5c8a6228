// What a block is made of beside attention: norms, activations, the feed-forward part. x is [T, D].

// The norm that a config names, as a function of x [T, D]; its weights are those called `name`. Its `ofPart` is what it
// makes of a part of one vector with the scale of the whole [D]: parts add up to what it makes of the whole, less the bias.
function normOf(config, tensors, name) {
  const { epsilon } = config;
  const weight = tensors.of(`${name}.weight`);
  const bias = tensors.has(`${name}.bias`) ? tensors.of(`${name}.bias`) : null;
  const isRms = config.norm === "rmsnorm";
  const norm = (x) => normalise(x, weight.length, { epsilon, isRms, weight, bias });
  const centred = (x) => {
    const mean = isRms ? 0 : x.reduce((total, number) => total + number, 0) / x.length;
    return x.map((number) => number - mean);
  };
  norm.ofPart = (part, whole) => {
    const spread = centred(whole).reduce((total, number) => total + number ** 2, 0) / whole.length;
    const factor = 1 / Math.sqrt(spread + epsilon);
    return centred(part).map((number, place) => number * factor * weight[place]);
  };
  return norm;
}

// (x - mean) / sqrt(variance + epsilon) * weight + bias for each token, or for its queries or keys; rmsnorm takes 0 for the mean.
function normalise(x, size, { epsilon = 1e-5, isRms = false, weight = null, bias = null } = {}) {
  const out = new Float32Array(x.length);
  for (let at = 0; at < x.length; at += size) {
    let mean = 0, variance = 0;
    if (!isRms) for (let place = 0; place < size; place++) mean += x[at + place] / size;
    for (let place = 0; place < size; place++) variance += (x[at + place] - mean) ** 2 / size;
    const factor = 1 / Math.sqrt(variance + epsilon);
    for (let place = 0; place < size; place++)
      out[at + place] = (x[at + place] - mean) * factor * (weight ? weight[place] : 1) + (bias ? bias[place] : 0);
  }
  return out;
}

// The error function, to 1.5e-7. Abramowitz and Stegun 1964, formula 7.1.26.
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));

// The last two are gated: Shazeer 2020, eq. 6.
const ACTIVATIONS = {
  gelu,
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  relu: (x) => Math.max(x, 0),
  relu2: (x) => Math.max(x, 0) ** 2,
  swiglu: (x) => x / (1 + Math.exp(-x)),
  geglu: gelu,
};

class FeedForward {
  constructor(config, tensors, name) {
    this.expand = tensors.linear(`${name}.expand`);
    this.contract = tensors.linear(`${name}.contract`);
    this.gate = config.gated ? tensors.linear(`${name}.gate`) : null;
    this.activation = ACTIVATIONS[config.activation];
  }

  // [T, D] -> [T, D]
  forward(x, numTokens) {
    const hidden = linear(this.gate ?? this.expand, x, numTokens);
    const gated = this.gate && linear(this.expand, x, numTokens);
    for (let place = 0; place < hidden.length; place++) hidden[place] = this.activation(hidden[place]) * (gated ? gated[place] : 1);
    return linear(this.contract, hidden, numTokens);
  }
}

// x + y: the sum of the residual stream and a branch.
function sum(x, y) {
  const out = new Float32Array(x.length);
  for (let place = 0; place < out.length; place++) out[place] = x[place] + y[place];
  return out;
}

// log(sum(exp(numbers))), without overflow.
function logSumExp(numbers) {
  let largest = -Infinity, total = 0;
  for (const number of numbers) if (number > largest) largest = number;
  for (const number of numbers) total += Math.exp(number - largest);
  return largest + Math.log(total);
}
