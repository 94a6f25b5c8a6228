// Byte pairs merged by rank, as the library tiktoken merges them; those of a list of merges are in imported.js.

const MAX_PIECE = 32768; // characters, as in gpt_cli/text/documents.py

class BytePairTokenizer extends Tokenizer {
  // `tokens` is base64 of the bytes of each token, with spaces between them.
  constructor({ pattern, tokens }) {
    super(bytesOfTokens(tokens));
    this.pattern = new RegExp(pattern, "gu");
    this.idOf = new Map(this.tokens.map((token, id) => [token, id]));
  }

  idsOf(text) {
    const ids = [];
    for (const piece of inPieces(text))
      for (const [word] of piece.matchAll(this.pattern)) for (const id of this.idsOfWord(utf8(word))) ids.push(id);
    return ids;
  }

  idsOfWord(word) {
    const whole = this.idOf.get(word);
    if (whole !== undefined) return [whole];
    return mergePairs(Array.from(word), (one, two) => this.idOf.get(one + two)).map((part) => this.idOf.get(part));
  }
}

function bytesOfTokens(tokens) { return tokens.split(" ").map((token) => atob(token)); }

// Two neighbouring parts that have a rank are merged, those of the lowest first, of equal ones the first, until none have one.
function mergePairs(parts, rankOf) {
  const size = parts.length;
  const [ends, starts] = [new Int32Array(size + 1), new Int32Array(size + 1)]; // of the part that begins, or ends, there
  for (let at = 0; at < size; at++) [ends[at], starts[at + 1]] = [at + 1, at];
  const pairOf = (start) => (ends[start] < size ? rankOf(parts[start], parts[ends[start]]) : undefined);
  const queue = new Queue();
  const offer = (start) => {
    const rank = pairOf(start);
    if (rank !== undefined) queue.push(rank * size + start);
  };
  for (let at = 0; at < size; at++) offer(at);
  while (queue.size) {
    const first = queue.pop();
    const start = first % size;
    // a part of this pair may have been merged since it was offered
    if (ends[start] === 0 || pairOf(start) !== (first - start) / size) continue;
    const middle = ends[start];
    parts[start] += parts[middle];
    ends[start] = ends[middle];
    ends[middle] = 0;
    starts[ends[start]] = start;
    if (start > 0) offer(starts[start]);
    offer(start);
  }
  const found = [];
  for (let at = 0; at < size; at = ends[at]) found.push(parts[at]);
  return found;
}

// Numbers of which the smallest leaves first: a heap.
class Queue {
  constructor() { this.numbers = []; }

  get size() { return this.numbers.length; }

  push(number) {
    const { numbers } = this;
    let at = numbers.length;
    for (let above; at > 0 && numbers[(above = (at - 1) >> 1)] > number; at = above) numbers[at] = numbers[above];
    numbers[at] = number;
  }

  pop() {
    const { numbers } = this;
    const [smallest, last] = [numbers[0], numbers.pop()];
    let at = 0;
    for (let below = 1; below < numbers.length; below = 2 * at + 1) {
      if (below + 1 < numbers.length && numbers[below + 1] < numbers[below]) below += 1;
      if (numbers[below] >= last) break;
      numbers[at] = numbers[below];
      at = below;
    }
    if (numbers.length) numbers[at] = last;
    return smallest;
  }
}

// A text in pieces of at most MAX_PIECE characters, cut after a newline where there is one: each is cut into words alone.
function* inPieces(text) {
  if (text.length <= MAX_PIECE) return yield text;
  const characters = [...text];
  for (let start = 0, end; start < characters.length; start = end) {
    end = start + MAX_PIECE;
    if (end < characters.length) end = characters.lastIndexOf("\n", end - 1) + 1;
    if (end <= start) end = start + MAX_PIECE;
    yield characters.slice(start, end).join("");
  }
}
