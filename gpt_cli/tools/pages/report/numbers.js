// Numbers as text, the points of curves, and the places of ticks.

const AXES = ["step", "tokens", "seconds"];

// The points of a curve by every axis: { step, tokens, seconds, value }, a Float64Array each, as Python packed them.
async function readCurve(text) {
  const numbers = new Float64Array(await unpack(text));
  const size = numbers.length / (AXES.length + 1);
  return Object.fromEntries([...AXES, "value"].map((name, at) => [name, numbers.subarray(at * size, (at + 1) * size)]));
}

// Those points that have a place on an axis: [x, y] each.
function pointsOf(curve, axis) {
  return Array.from(curve.value, (value, at) => [curve[axis][at], value]).filter(([x]) => Number.isFinite(x));
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 9 });
const isChinese = () => document.documentElement.lang.startsWith("zh");
const millions = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
// Millions, or in Chinese ten thousands, as gpt writes them in a terminal.
const compact = { format: (value) => (isChinese() ? inTenThousands(value) : millions.format(value)) };
const FORMATS = {
  loss: (value) => Math.abs(value) < 1e6 ? value.toFixed(4) : value.toPrecision(4),
  learning_rate: (value) => String(Number(value.toPrecision(4))),
  gradient_norm: (value) => String(Number(value.toPrecision(4))),
  tokens_per_second: (value) => whole.format(Math.round(value)),
  parameters: (value) => compact.format(value),
  steps: (value) => whole.format(value),
  tokens: (value) => compact.format(value),
  seconds: durationOf,
};
for (const name of ["validation_loss", "smoothed_loss", "bits_per_byte"]) FORMATS[name] = FORMATS.loss;

function inTenThousands(value) {
  const [unit, size] = [["亿", 1e8], ["万", 1e4]].find(([, size]) => Math.abs(value) >= size) ?? ["", 1];
  return unit ? `${whole.format(Number((value / size).toPrecision(3)))} ${unit}` : whole.format(value);
}

function durationOf(seconds) {
  const [h, min, s] = isChinese() ? ["小时", "分", "秒"] : ["h", "min", "s"];
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} ${s}`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} ${min}` : `${Math.floor(minutes / 60)} ${h} ${minutes % 60} ${min}`;
}

function tickText(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e15 || size < 1e-3) return value.toExponential().replace("e+", "e");
  return size >= 10_000 ? compact.format(value) : whole.format(Number(value.toPrecision(6)));
}

// About `count` round numbers from `low` to `high`.
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const apart = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough);
  const found = [];
  for (let at = Math.ceil(low / apart - 1e-9); at * apart <= high + apart * 1e-9; at++) found.push(Number((at * apart).toPrecision(12)));
  return found;
}

// Round numbers on a logarithmic scale: 1, 2, 5, 10, ... or powers of ten; where these are too few, those of `ticks`.
function logarithmicTicks(low, high, count) {
  const found = [];
  const decades = Math.log10(high / low);
  const every = Math.max(1, Math.ceil(decades / count));
  const within = decades < count / 2 ? [1, 2, 3, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every)
    for (const times of within) found.push(Number((times * 10 ** power).toPrecision(3)));
  const inside = found.filter((value) => value >= low && value <= high);
  return inside.length > 2 ? inside : ticks(low, high, count);
}

// The point whose x is nearest; null where there is none.
function nearest(points, x) {
  let found = null;
  for (const point of points) if (found === null || Math.abs(point[0] - x) < Math.abs(found[0] - x)) found = point;
  return found;
}
