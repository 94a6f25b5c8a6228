// The scores of all heads, and the labels that follow from them; of each frame, where there are several.

class Scores {
  // `roles` are [column, least]: the first column that reaches its least score names the label, in a text of at least
  // `least_tokens`. `numHeads` is of all layers.
  constructor({ columns, roles, least_tokens: leastTokens }, numbers, numHeads, numTokens = 0) {
    Object.assign(this, { columns, roles, leastTokens, numbers, numHeads, numTokens });
  }

  static async read(content, { numHeads, numTokens }) {
    return new Scores(content, new Float32Array(await unpack(content.numbers)), numHeads, numTokens);
  }

  // `place` counts the heads through all layers. NaN where there was nothing to measure.
  of(frame, place, column) {
    return this.numbers[(frame * this.numHeads + place) * this.columns.length + this.columns.indexOf(column)];
  }

  // The place of the head with the highest score; 0 where nothing was measured.
  highest(frame, column) {
    const found = Array.from({ length: this.numHeads }, (_, place) => this.of(frame, place, column));
    return Math.max(0, found.indexOf(Math.max(...found.filter((score) => !Number.isNaN(score)))));
  }

  role(frame, place) {
    if (this.numTokens < this.leastTokens) return null;
    return this.roles.find(([column, least]) => this.of(frame, place, column) >= least)?.[0] ?? null;
  }

  get numFrames() { return this.numbers.length / this.numHeads / this.columns.length; }

  // Whether those of a head change while one looks.
  get vary() { return this.numFrames > 1; }

  // The labels that any head of any frame has.
  rolesFound() {
    const found = new Set();
    for (let frame = 0; frame < this.numFrames; frame++)
      for (let place = 0; place < this.numHeads; place++) found.add(this.role(frame, place));
    return this.roles.map(([column]) => column).filter((column) => found.has(column));
  }
}

function scoreText(score) { return Number.isNaN(score) ? "–" : score.toFixed(3); }

// What each score says, for those who want to know.
function explainScores({ scores, words }) {
  byId("meanings").replaceChildren(...scores.columns.flatMap((column) =>
    [element("dt", "", words.columns[column]), element("dd", "", words.meanings[column])]));
}

// The scores of the chosen head as a small table, with nothing in it for a mean.
function showScores(page) {
  const { scores, frame, words, place } = page;
  const none = place === null;
  byId("scores").hidden = byId("scores-help").hidden = none;
  const role = none ? null : scores.role(frame, place);
  byId("head-role").textContent = role === null ? "" : `· ${words.columns[role]}`;
  byId("scores").replaceChildren(...(none ? [] : scores.columns).map((column) =>
    pairOf(words.columns[column], scoreText(page.score(place, column)))));
}
