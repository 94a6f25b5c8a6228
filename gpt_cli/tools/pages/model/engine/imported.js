// Tokenizers of others, as gpt_cli/text/hf_tokenizer.py reads them: added tokens, normalization, cuts, then pairs in the order of a list.

class ImportedTokenizer extends Tokenizer {
  // `tokens` is as in BytePairTokenizer. With `letters` a token is its bytes, else a text in which a
  // mark stands for a space and <0x0A> for a byte. `merges` has pairs of ids; `normalizer` has steps of tokenizer.json.
  constructor(content) {
    const names = bytesOfTokens(content.tokens);
    super(content.letters ? [...names] : names.map((name) => bytesOfName(name, utf8(content.mark))));
    const { end_of_text, starts_with, skipped, added, cuts } = content;
    Object.assign(this, { content, endOfText: end_of_text, startsWith: starts_with, vocabSize: names.length });
    for (const id of [end_of_text, ...starts_with]) this.tokens[id] = "";
    this.skipped = new Map(skipped); // the names of special tokens
    const own = new Set(added.flat().map(([, id]) => id));
    this.idOf = new Map(names.map((name, id) => [name, id]).filter(([name, id]) => name && !own.has(id)));
    this.ranks = new Map(content.merges.map(([one, two], rank) => [one * this.vocabSize + two, rank]));
    this.added = added.map((tokens) => [new Map(tokens), anyOf(tokens.map(([text]) => text))]);
    this.cuts = cuts.map((cut) => (cut.pattern ? { pattern: new RegExp(`(${cut.pattern})`, "u") } : cut));
  }

  bytesOf(ids) { return super.bytesOf(ids.filter((id) => !this.skipped.has(id))); }

  tokenText(id) { return this.skipped.get(id) ?? super.tokenText(id); }

  idsOf(text) {
    const [[first, early], [second, late]] = this.added;
    const ids = [];
    for (const raw of isolated(text, early)) {
      if (first.has(raw)) ids.push(first.get(raw));
      else for (const part of isolated(this.normalized(raw), late)) {
        if (second.has(part)) ids.push(second.get(part));
        else for (const word of this.words(part, !ids.length)) for (const id of this.idsOfWord(word)) ids.push(id);
      }
    }
    return ids;
  }

  normalized(text) {
    for (const { type, prepend, pattern, content } of this.content.normalizer)
      text = type === "NFC" ? text.normalize() : type === "Prepend" ? (text && prepend + text) : text.replaceAll(pattern.String, content);
    return text;
  }

  words(part, begins) {
    let words = [part];
    for (const { pattern, replacement: mark, prepend_scheme: scheme, split } of this.cuts)
      words = words.flatMap((word, at) => {
        if (pattern) return isolated(word, pattern);
        const marked = word.replaceAll(" ", mark);
        const prepend = scheme === "always" || (scheme === "first" && begins && at === 0);
        const whole = prepend && !marked.startsWith(mark) ? mark + marked : marked;
        return split ? whole.split(new RegExp(`(?=${mark})`, "u")) : [whole];
      });
    return words;
  }

  idsOfWord(word) {
    const { letters, whole } = this.content;
    const found = whole && this.idOf.get(utf8(word));
    if (found !== undefined && found !== false) return [found];
    const parts = letters ? Array.from(utf8(word)) : Array.from(word, utf8).flatMap((part) => this.idOf.has(part) ? [part] : Array.from(part, nameOfByte));
    const rankOf = (one, two) => this.ranks.get(this.idOf.get(one) * this.vocabSize + this.idOf.get(two));
    return mergePairs(parts, rankOf).map((part) => this.idOf.get(part)).filter((id) => id !== undefined);
  }
}

function bytesOfName(name, mark) {
  const byte = /^<0x([0-9A-F]{2})>$/i.exec(name);
  return byte ? String.fromCharCode(parseInt(byte[1], 16)) : name.replaceAll(mark, " ");
}

function nameOfByte(letter) { return `<0x${letter.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}>`; }

// The matches of a pattern, which is one group, and what is between them.
function isolated(text, pattern) { return text.split(pattern).filter((part) => part); }

// A pattern of some texts, of which the longest counts; of none where there are none.
function anyOf(texts) {
  const longest = [...texts].sort((one, two) => two.length - one.length);
  return new RegExp(`(${longest.map((text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")).join("|") || "(?!)"})`, "u");
}
