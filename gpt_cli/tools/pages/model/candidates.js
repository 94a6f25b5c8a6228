// Bars of what may come next.

const NUM_CANDIDATES = 12;
const NUM_CHANGED = 4;
const NUM_COMPARED = 500; // likeliest tokens of each kind, to find those that heads raise or lower most

class Candidates {
  constructor(picked) {
    byId("candidates").addEventListener("click", (event) => {
      const row = event.target.closest("button");
      if (row) picked(row.candidate);
    });
    byId("candidates").addEventListener("keydown", (event) => this.walk(event));
  }

  walk(event) {
    const rows = [...byId("candidates").querySelectorAll("button")];
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step || withModifier(event)) return;
    event.preventDefault();
    rows[rows.indexOf(event.target) + step]?.focus();
  }

  // `chances` of the model as it is now; `others` with all heads on, null where they are.
  show(chances, others, words) {
    const rows = others ? compared(chances, others) : chances.slice(0, NUM_CANDIDATES);
    const widest = Math.max(1e-9, ...rows.map(({ probability, before, other }) => Math.max(probability, before, other ?? 0)));
    const focused = [...byId("candidates").children].findIndex((row) => row.contains(document.activeElement));
    byId("candidates").replaceChildren(...rows.map((candidate) => this.row(candidate, widest, words)));
    if (focused >= 0) byId("candidates").children[Math.min(focused, rows.length - 1)]?.firstChild.focus();
    byId("bars-help").textContent = words.barsHelp + (others ? words.othersHelp : "");
  }

  row(candidate, widest, words) {
    const { text, probability, before, other } = candidate;
    const share = (part) => `${(100 * part / widest).toFixed(2)}%`;
    const frame = element("span", "frame");
    const bars = [["bar", probability], ...(other === undefined ? [] : [["bar other", other]])];
    for (const [kind, part] of bars) {
      const bar = element("span", kind);
      bar.style.width = share(part);
      frame.append(bar);
    }
    const mark = element("span", "mark");
    mark.style.left = share(before);
    if (Math.abs(before - probability) > 0.0005) frame.append(mark);
    const word = element("span", "word", markedLabel(text, 24));
    word.title = labelOf(text);
    const button = element("button", "candidate", word, frame, element("span", "number", percent(probability)));
    if (other !== undefined) button.append(element("span", "number other", percent(other)));
    button.setAttribute("aria-label", words.candidate(labelOf(text), percent(probability)));
    button.candidate = candidate;
    return element("li", "", button);
  }
}

// The likeliest tokens of either kind, in the order of the first.
function compared(chances, others) {
  const height = ({ probability, other }) => Math.max(probability, other);
  return together(chances, others).sort((a, b) => height(b) - height(a)).slice(0, NUM_CANDIDATES)
    .sort((a, b) => b.probability - a.probability);
}

// Those whose chances differ most.
function mostChanged(chances, others) {
  const change = ({ probability, other }) => Math.abs(probability - other);
  return together(chances, others).sort((a, b) => change(b) - change(a)).slice(0, NUM_CHANGED);
}

function together(chances, others) {
  const found = new Map(chances.map((chance) => [chance.id, { ...chance, other: 0 }]));
  for (const { id, text, probability, before } of others)
    if (found.has(id)) found.get(id).other = probability;
    else found.set(id, { id, text, probability: 0, before: 0, other: probability });
  return [...found.values()];
}

// A label after a space that one can see; many spaces as a number.
function markedLabel(token, limit) {
  const label = marked(labelOf(token)).replace(/␣{5,}/g, (spaces) => `␣×${spaces.length}`);
  const characters = [...label];
  return characters.length <= limit ? characters.join("") : `${characters.slice(0, limit - 1).join("")}…`;
}

function percent(probability) {
  const share = 100 * probability;
  return `${share >= 99.95 || share === 0 ? share.toFixed(0) : share >= 0.1 ? share.toFixed(1) : "<0.1"}%`;
}
