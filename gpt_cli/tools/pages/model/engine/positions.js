// How a model learns the order of tokens: positions added to embeddings, or rotated into queries and keys.

// The sinusoidal position that is added to an embedding: [D]. Vaswani et al. 2017, section 3.5.
function sinusoidal(position, size) {
  const angle = (pair) => position * 10000 ** ((-2 * pair) / size);
  const wave = (place) => (place % 2 ? Math.cos : Math.sin)(angle(Math.floor(place / 2)));
  return Float32Array.from({ length: size }, (_, place) => wave(place));
}

// Turns each pair (i, i + R/2) of the first R numbers of queries or keys [T, size] of tokens from `start` on, in place: pair
// i by position times frequency i of R/2. Su et al. 2021.
function rotate(x, frequencies, size, start) {
  const pairs = frequencies.length;
  for (let at = 0, position = start; at < x.length; at += size, position++) {
    for (let pair = 0; pair < pairs; pair++) {
      const turn = position * frequencies[pair];
      const cosine = Math.fround(Math.cos(turn)), sine = Math.fround(Math.sin(turn));
      const first = x[at + pair], second = x[at + pair + pairs];
      x[at + pair] = first * cosine - second * sine;
      x[at + pair + pairs] = second * cosine + first * sine;
    }
  }
  return x;
}
