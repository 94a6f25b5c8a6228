// Tokens as labels, as gpt_cli/common/drawing/token_labels.py makes them: short, on one line, and visible.

const MAX_LABEL = 12; // characters

// All of a token's text, and a short form.
function labelsOf(token) {
  const text = labelOf(token);
  const characters = [...text];
  return { text, short: characters.length <= MAX_LABEL ? text : `${characters.slice(0, MAX_LABEL - 1).join("")}…` };
}

// With signs for line breaks, for white space alone, and for what cannot be seen.
function labelOf(token) {
  const signs = /[^\s\x1c-\x1f\x85]|\ufeff/.test(token) ? token : token.replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
  return signs.replaceAll("\n", "↵").replace(/[\p{C}\p{Z}]/gu, (character) =>
    character === " " ? " " : `\\x${character.codePointAt(0).toString(16).padStart(2, "0")}`);
}
