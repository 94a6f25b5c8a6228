// Tokens as labels, as gpt_cli/common/drawing/token_labels.py makes them: short, on one line, and visible.

const MAX_LABEL = 12; // characters

// All of a token's text, and a short form, which ends before the first character that does not fit.
function labelsOf(token) {
  const parts = partsOf(token);
  let length = 0;
  const fitting = parts.filter((part) => (length += [...part].length) < MAX_LABEL);
  return { text: parts.join(""), short: length <= MAX_LABEL ? parts.join("") : `${fitting.join("")}…` };
}

function labelOf(token) { return partsOf(token).join(""); }

// Its characters, with signs for line breaks, for white space or a combining mark alone, and for what cannot be seen.
function partsOf(token) {
  const signs = /[^\s\x1c-\x1f\x85]|\ufeff/.test(token) ? token : token.replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
  return Array.from(signs.replaceAll("\n", "↵").replace(/^\p{M}/u, "◌$&"), (character) =>
    character !== " " && /[\p{C}\p{Z}]/u.test(character) ? escaped(character.codePointAt(0)) : character);
}

function escaped(point) {
  const [sign, digits] = point < 0x100 ? ["x", 2] : point < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${sign}${point.toString(16).padStart(digits, "0")}`;
}
