// Random numbers as a function of a seed: those that `gpt sample --seed` draws on a processor.

// Numbers at least 0 and below 1 of the first sample of a seed, by their place: what torch.Generator gives in float64.
class Uniforms {
  constructor(seed) {
    this.seed = seed;
    this.twister = new MersenneTwister(streamKey(seed, "sample", 0));
    this.numbers = [];
  }

  at(index) {
    const { numbers, twister } = this;
    while (numbers.length <= index) {
      const high = twister.word() & 0x1fffff; // 21 of 53 bits
      numbers.push((high * 2 ** 32 + twister.word()) * 2 ** -53);
    }
    return numbers[index];
  }
}

// The lowest 32 bits of `stream_key` of gpt_cli/common/rng.py: torch takes no more of a seed.
function streamKey(seed, name, number) {
  return blake2b(new TextEncoder().encode(`(${seed}, '${name}', ${number})`));
}

// Which word of the message goes where, in each round of BLAKE2b: RFC 7693, section 2.7, in hexadecimal digits.
const SIGMA = ["0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d",
  "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0"];
const INITIAL = [0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n];

// BLAKE2b (RFC 7693) with a digest of 8 bytes, of at most 128 bytes: the first four bytes of the digest as a number.
function blake2b(bytes) {
  const block = new Uint8Array(128);
  block.set(bytes);
  const message = new BigUint64Array(block.buffer);
  const first = INITIAL[0] ^ 0x01010008n;
  const v = BigUint64Array.of(first, ...INITIAL.slice(1), ...INITIAL);
  v[12] ^= BigInt(bytes.length);
  v[14] = ~v[14]; // the last block
  const turned = (number, bits) => (number >> BigInt(bits)) | (number << BigInt(64 - bits));
  const mix = (a, b, c, d, x, y) => {
    v[a] += v[b] + message[x];
    v[d] = turned(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 24);
    v[a] += v[b] + message[y];
    v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 63);
  };
  for (let round = 0; round < 12; round++) {
    const order = Array.from(SIGMA[round % 10], (digit) => parseInt(digit, 16));
    for (let column = 0; column < 8; column++) { // four columns, then four diagonals
      const row = (number) => 4 * number + ((column < 4 ? column : column + number) % 4);
      mix(row(0), row(1), row(2), row(3), order[2 * column], order[2 * column + 1]);
    }
  }
  return Number(BigInt.asUintN(32, first ^ v[0] ^ v[8]));
}

// MT19937 of Matsumoto and Nishimura 1998, seeded with a number of 32 bits.
class MersenneTwister {
  constructor(seed) {
    this.state = new Uint32Array(624);
    this.state[0] = seed;
    for (let at = 1; at < 624; at++) {
      const before = this.state[at - 1];
      this.state[at] = Math.imul(1812433253, before ^ (before >>> 30)) + at;
    }
    this.next = 624;
  }

  // The next number of 32 bits.
  word() {
    if (this.next === 624) this.twist();
    let word = this.state[this.next++];
    word ^= word >>> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    return (word ^ (word >>> 18)) >>> 0;
  }

  twist() {
    const { state } = this;
    for (let at = 0; at < 624; at++) {
      const mixed = (state[at] & 0x80000000) | (state[(at + 1) % 624] & 0x7fffffff);
      state[at] = state[(at + 397) % 624] ^ (mixed >>> 1) ^ (mixed & 1 ? 0x9908b0df : 0);
    }
    this.next = 0;
  }
}
