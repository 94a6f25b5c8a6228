// How a model learns the order of tokens: positions added to embeddings, or rotated into queries and keys.

// Position times frequency, 10000^(-2i/size): the angle of pair i.
function angle(position, pair, size) { return position * 10000 ** ((-2 * pair) / size); }

// The sinusoidal position that is added to an embedding: [D]. Vaswani et al. 2017, section 3.5.
function sinusoidal(position, size) {
  const wave = (place) => (place % 2 ? Math.cos : Math.sin)(angle(position, Math.floor(place / 2), size));
  return Float32Array.from({ length: size }, (_, place) => wave(place));
}

// Turns each pair (i, i + size/2) of queries or keys [T, size] of tokens from `start` on, in place. Su et al. 2021.
function rotate(x, size, start) {
  const pairs = size / 2;
  for (let at = 0, position = start; at < x.length; at += size, position++) {
    for (let pair = 0; pair < pairs; pair++) {
      const turn = angle(position, pair, size);
      const cosine = Math.fround(Math.cos(turn)), sine = Math.fround(Math.sin(turn));
      const first = x[at + pair], second = x[at + pair + pairs];
      x[at + pair] = first * cosine - second * sine;
      x[at + pair + pairs] = second * cosine + first * sine;
    }
  }
  return x;
}
