// The numbers of a model: read from the page, and multiplied. A tensor is a typed array, row after row.

const _HALVES = new Float32Array(2 ** 16); // each float16 as a number, by its bits

// The bytes of a text in base64.
function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text); // browsers from 2025 on
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < bytes.length; place++) bytes[place] = letters.charCodeAt(place);
  return bytes;
}

// The value of a float16 that these 16 bits mean.
function half(bits) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const sign = bits >> 15 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}

// float16 numbers as float32: Uint16Array -> Float32Array.
function fromHalves(halves) {
  if (_HALVES[1] === 0) for (let bits = 0; bits < _HALVES.length; bits++) _HALVES[bits] = half(bits);
  const numbers = new Float32Array(halves.length);
  for (let place = 0; place < numbers.length; place++) numbers[place] = _HALVES[halves[place]];
  return numbers;
}

// A matrix [rows, columns]: float32, or whole numbers of 8 bits with a scale for each row.
class Matrix {
  constructor(rows, columns, numbers, scales = null) {
    Object.assign(this, { rows, columns, numbers, scales });
  }

  // One row as float32 numbers [columns].
  row(place) {
    const { columns, numbers, scales } = this;
    const own = numbers.subarray(place * columns, (place + 1) * columns);
    return scales ? new Float32Array(own).map((number) => number * scales[place]) : own;
  }
}

// The tensors of a page by name: matrices, and Float32Array for vectors.
class Tensors {
  constructor(described, bytes) {
    this.found = new Map(described.map((tensor) => [tensor.name, Tensors.read(tensor, bytes.buffer)]));
  }

  static read({ shape, kind, at, scales_at }, buffer) {
    const count = shape.reduce((product, size) => product * size, 1);
    if (kind === "float32" && shape.length === 1) return new Float32Array(buffer, at, count);
    const [rows, columns] = shape;
    if (kind === "int8")
      return new Matrix(rows, columns, new Int8Array(buffer, at, count), new Float32Array(buffer, scales_at, rows));
    return new Matrix(rows, columns, fromHalves(new Uint16Array(buffer, at, count)));
  }

  has(name) { return this.found.has(name); }

  of(name) {
    if (!this.has(name)) throw new Error(`the page has no tensor ${name}`);
    return this.found.get(name);
  }

  // A linear layer of the model; its bias is null where there is none.
  linear(name) {
    return { weight: this.of(`${name}.weight`), bias: this.has(`${name}.bias`) ? this.of(`${name}.bias`) : null };
  }
}

// weight x + bias for each token: x [T, in] -> [T, out].
function linear({ weight, bias }, x, numTokens) {
  const { rows, scales } = weight;
  const out = new Float32Array(numTokens * rows);
  for (let row = 0; row < rows; row += 4) multiplyFour(weight, row, x, numTokens, out);
  if (scales) for (let at = 0; at < out.length; at++) out[at] *= scales[at % rows];
  if (bias) for (let at = 0; at < out.length; at++) out[at] += bias[at % rows];
  return out;
}

// Four rows of a matrix, or the last ones, times each token: two tokens at once, so that eight sums grow together and
// each number that is read serves two or four of them. A page has matrices of one kind, for which this compiles.
function multiplyFour({ rows, columns, numbers }, row, x, numTokens, out) {
  const last = rows - 1;
  const [first, second, third, fourth] = [row, Math.min(row + 1, last), Math.min(row + 2, last), Math.min(row + 3, last)];
  const one = numbers.subarray(first * columns, (first + 1) * columns);
  const two = numbers.subarray(second * columns, (second + 1) * columns);
  const three = numbers.subarray(third * columns, (third + 1) * columns);
  const four = numbers.subarray(fourth * columns, (fourth + 1) * columns);
  let token = 0;
  for (; token + 1 < numTokens; token += 2) {
    const here = token * columns, next = here + columns, to = token * rows;
    let a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    for (let column = 0; column < columns; column++) {
      const w = x[here + column], v = x[next + column];
      a += one[column] * w;
      b += two[column] * w;
      c += three[column] * w;
      d += four[column] * w;
      e += one[column] * v;
      f += two[column] * v;
      g += three[column] * v;
      h += four[column] * v;
    }
    out[to + first] = a;
    out[to + second] = b;
    out[to + third] = c;
    out[to + fourth] = d;
    out[to + rows + first] = e;
    out[to + rows + second] = f;
    out[to + rows + third] = g;
    out[to + rows + fourth] = h;
  }
  for (; token < numTokens; token++) {
    const here = token * columns, to = token * rows;
    let a = 0, b = 0, c = 0, d = 0;
    for (let column = 0; column < columns; column++) {
      const w = x[here + column];
      a += one[column] * w;
      b += two[column] * w;
      c += three[column] * w;
      d += four[column] * w;
    }
    out[to + first] = a;
    out[to + second] = b;
    out[to + third] = c;
    out[to + fourth] = d;
  }
}
