// The scores of all heads, and the labels that follow from them; of each frame, where there are several.

class Scores {
  constructor(content, numbers, labels, numHeads) {
    this.columns = content.columns;
    this.roles = content.roles; // a label has the name of the column from which it follows
    this.numbers = numbers;
    this.labels = labels;
    this.numHeads = numHeads; // of all layers
  }

  static async read(content, numHeads) {
    const [numbers, labels] = await Promise.all([unpack(content.numbers), unpack(content.labels)]);
    return new Scores(content, new Float32Array(numbers), new Uint8Array(labels), numHeads);
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

  role(frame, place) { return this.roles[this.labels[frame * this.numHeads + place]] ?? null; }

  // The labels that any head of any frame has.
  rolesFound() { return this.roles.filter((_, number) => this.labels.includes(number)); }
}

function scoreText(score) { return Number.isNaN(score) ? "–" : score.toFixed(3); }

// What each score says, for those who want to know.
function explainScores({ scores, words }) {
  byId("meanings").replaceChildren(...(scores?.columns ?? []).flatMap((column) =>
    [element("dt", "", words.columns[column]), element("dd", "", words.meanings[column])]));
}

// The scores of the chosen head as a small table, with nothing in it for a mean.
function showScores(page) {
  const { scores, frame, words, place } = page;
  const none = scores === null || place === null;
  byId("scores").hidden = byId("scores-help").hidden = none;
  const role = none ? null : scores.role(frame, place);
  byId("head-role").textContent = role === null ? "" : `· ${words.columns[role]}`;
  byId("scores").replaceChildren(...(none ? [] : scores.columns).map((column) => {
    const pair = document.createElement("div");
    pair.append(element("dt", "", words.columns[column]), element("dd", "", scoreText(scores.of(frame, place, column))));
    return pair;
  }));
}
