// Embeddings of the last few tokens together.

const _MIXER = 0x9E3779B97F4A7C15n; // 2^64 / golden ratio (Knuth, vol. 3, section 6.4)

// Adds to each token the embeddings of the 2, ..., N tokens that end with it, then normalises the sum.
class NgramEmbedding {
  constructor(config, tensors, vocabSize) {
    this.vocabSize = vocabSize;
    this.tables = Array.from({ length: config.ngram_embedding - 1 }, (_, number) => tensors.of(`ngram_embedding.tables.${number}.weight`));
  }

  // Embeddings x [T, D] of the tokens of ids from `start` on -> [T, D].
  forward(x, ids, start) {
    const out = this.added(ids, start);
    for (let place = 0; place < out.length; place++) out[place] += x[place];
    return normalise(out, this.tables[0].columns);
  }

  // The sum of the n-grams' embeddings alone: [T, D].
  added(ids, start) {
    const { columns } = this.tables[0];
    const out = new Float32Array((ids.length - start) * columns);
    for (let place = start; place < ids.length; place++) {
      this.rows(ids, place).forEach((row, table) => {
        const found = this.tables[table].row(row);
        for (let column = 0; column < columns; column++) out[(place - start) * columns + column] += found[column];
      });
    }
    return out;
  }

  // For each table the row of the n-gram that ends at a place; the first token follows end-of-text.
  rows(ids, place) {
    const { vocabSize } = this;
    let code = BigInt(ids[place]);
    return this.tables.map((table, number) => {
      const earlier = place - number - 1 < 0 ? vocabSize - 1 : ids[place - number - 1];
      const exact = table.rows === vocabSize ** (number + 2);
      code = BigInt.asIntN(64, code + BigInt(earlier) * BigInt(vocabSize) ** BigInt(number + 1)); // as a hash may wrap
      return Number(exact ? code : modulo(BigInt.asIntN(64, code * _MIXER) >> 32n, BigInt(table.rows)));
    });
  }
}

// The rest that has the sign of the divisor, as in Python.
function modulo(number, divisor) { return ((number % divisor) + divisor) % divisor; }
