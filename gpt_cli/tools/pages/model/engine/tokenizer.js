// Text to ids and back, as gpt_cli/text/tokenizers.py does it. Bytes are strings with one letter, U+0000 to U+00FF, for
// each byte: such strings are keys of a Map, and `atob` makes them.

const END_OF_TEXT = "<|endoftext|>";

// What every kind has in common: ids 0 to vocabSize - 1, of which the last is endOfText, but for imported ones.
class Tokenizer {
  // `tokens` holds the bytes of every id but endOfText.
  constructor(tokens) {
    this.tokens = tokens;
    this.endOfText = tokens.length;
    this.vocabSize = tokens.length + 1;
    this.startsWith = []; // ids before the first of every text
  }

  // The ids of a text; throws for half a character, and for one that the vocabulary lacks.
  encode(text) {
    const half = text.search(/\p{Surrogate}/u);
    if (half >= 0) throw new Refusal("halfCharacter", named(text[half], [...text.slice(0, half)].length));
    return this.idsOf(text);
  }

  // The ids of a prompt: what comes before every text, then its own; end-of-text where there is nothing.
  begin(ids) { return ids.length + this.startsWith.length ? [...this.startsWith, ...ids] : [this.endOfText]; }

  // The bytes of some ids, which may end in the middle of a character; end-of-text has none.
  bytesOf(ids) {
    const letters = ids.map((id) => (id === this.endOfText ? "" : this.tokens[id])).join("");
    return Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  }

  // The text of some ids, without a last character that later ones may complete: a Chinese one has three bytes. Other
  // bytes that are not a whole character become U+FFFD. gpt_cli/sampling/streaming.py does the same.
  textSoFar(ids) { return new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.bytesOf(ids), { stream: true }); }

  // One token for a reader: its text, or its bytes as <0xE4> where they are not a character.
  tokenText(id) {
    if (id === this.endOfText) return END_OF_TEXT;
    const bytes = this.bytesOf([id]);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes).replaceAll("\0", "<0x00>");
    } catch {
      return Array.from(bytes, (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`).join("");
    }
  }
}

// The 256 bytes of UTF-8.
class ByteTokenizer extends Tokenizer {
  constructor() { super(Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte))); }

  idsOf(text) { return Array.from(new TextEncoder().encode(text)); }
}

// The characters of the corpus.
class CharTokenizer extends Tokenizer {
  constructor({ characters }) {
    super(Array.from(characters, utf8));
    this.idOf = new Map(Array.from(characters, (character, id) => [character, id]));
  }

  idsOf(text) {
    const ids = Array.from(text, (character) => this.idOf.get(character));
    if (ids.includes(undefined)) {
      const unknown = [...text].map(named).filter((_, at) => ids[at] === undefined);
      const first = new Map([...unknown].reverse()); // of each kind, its first place
      const kinds = unknown.filter(([name, position]) => first.get(name) === position);
      throw new Refusal("unknownCharacters", this.idOf.size, kinds.slice(0, 5), Math.max(0, kinds.length - 5), unknown.length);
    }
    return ids;
  }
}

// The tokenizer that `tokenizer_content` of gpt_cli/tools/exchange/page_data.py described.
function openTokenizer(content) {
  if (content.kind === "byte") return new ByteTokenizer();
  const kind = { char: CharTokenizer, imported: ImportedTokenizer }[content.kind] ?? BytePairTokenizer;
  return new kind(content);
}

// A character in an error message, and its position.
function named(character, position) {
  const point = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  const shown = /[\p{C}\p{Z}]/u.test(character) && character !== " " ? "" : `“${character}” `;
  return [`${shown}U+${point}`, position];
}

// The bytes of a text.
function utf8(text) {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}
