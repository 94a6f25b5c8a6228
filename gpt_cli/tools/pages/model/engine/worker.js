// The engine as a worker: it answers messages {id, method, args} in turn, with {id, result} or {id, error: {message, reason,
// values}}. Long reading tells {id, progress: {done, total}} meanwhile, and ends early where a message {stop: true} comes.

const LEAST = 1e-3; // nats between two texts, as in patch.py: below, shares would be rounding
const PATIENCE = 50; // milliseconds of work, after which newer messages are looked at

class Engine {
  // The content of a page, and its weights in base64.
  open({ content, weights }) {
    const { config, tensors, tokenizer } = content;
    this.model = new GPT(config, new Tensors(tensors, bytesOf(weights)));
    this.tokenizer = openTokenizer(tokenizer);
    this.memories = new Map(); // by what is changed, the latest last
    this.recordings = new Map(); // by the text whose parts they keep: its own or the other one
    return {
      num_layers: config.num_blocks,
      num_heads: config.num_heads,
      context_length: config.context_length,
      end_of_text: this.tokenizer.endOfText,
    };
  }

  // The ids of a text, and the text of each token; an empty text begins as gpt sample begins.
  encode({ text }) {
    const ids = this.tokenizer.begin(this.tokenizer.encode(text));
    return { ids, texts: this.texts(ids) };
  }

  // The text of ids up to their last whole character, and that of each token by itself.
  decode({ ids }) { return { text: this.tokenizer.textSoFar(ids), texts: this.texts(ids) }; }

  texts(ids) { return ids.map((id) => this.tokenizer.tokenText(id)); }

  // Reads ids, with changes as changes.js has them, patches from the `other` ids; tokens that an earlier text has too are not computed again. Of a text
  // longer than the context, the tokens from `start` on count: surprisals [T] has NaN for those before. Of the attention
  // of all heads, it gives the rows of tokens from `first` on, after those of `had`, of which the caller knows them; null
  // wants none. `patterns` has the scores of all heads on it. `chances` wants the likeliest tokens. `goesOn` hears how many of how many tokens are read, and decides.
  async run({ ids, changes = [], other = null, had = [], chances = null }, goesOn = () => true) {
    const start = windowStart(ids.length, this.model.config.context_length);
    const window = this.checked(ids.slice(start));
    const memory = await this.reading(window, changes, other, goesOn);
    if (!memory) return null;
    this.latest = memory;
    const first = had ? commonPrefix(had, window) : window.length;
    const surprisals = new Float32Array(ids.length).fill(NaN);
    surprisals.set(memory.surprisals.numbers.subarray(0, window.length), start);
    return {
      start,
      logits: memory.logits.slice(),
      surprisals,
      first,
      attention: memory.attention(first),
      patterns: memory.meanPatterns(),
      chances: chances && this.chances(chances),
    };
  }

  // The likeliest tokens after the text of the last run: {id, text, probability, before}, where `before` is the
  // probability without the parameters.
  chances({ count, ...parameters }) {
    const found = likeliest(this.latest.logits, parameters, count);
    return found.map((chance) => ({ ...chance, text: this.tokenizer.tokenText(chance.id) }));
  }

  // The id that `gpt sample --seed` draws after `index` other ones, for the text of the last run.
  draw({ seed, index, ...parameters }) {
    if (this.uniforms?.seed !== seed) this.uniforms = new Uniforms(seed);
    return choose(probabilities(this.latest.logits, parameters), this.uniforms.at(index));
  }

  // One head step by step, at one token of ids.
  async explain({ ids, changes = [], other = null, layer, head, query }) {
    const names = this.texts(this.checked(ids)).map((text, place) => `${place} ${labelOf(text).trim() || labelOf(text)}`);
    return { steps: explainHead(this.model, ids, names, { memory: await this.reading(ids, changes, other), layer, head, query }) };
  }

  // The `count` tokens whose logits a head raises and lowers most at one token of ids, the strongest first: {text, logit}.
  async writes({ ids, changes = [], other = null, layer, head, query, count }) {
    const logits = headWrites(this.model, await this.reading(this.checked(ids), changes, other), { layer, head, query });
    const order = ranked(logits);
    const found = (some) => Array.from(some, (id) => ({ text: labelOf(this.tokenizer.tokenText(id)), logit: logits[id] }));
    return [found(order.subarray(0, count)), found(order.subarray(-count).reverse())];
  }

  // What each layer would predict after the tokens of ids from `first` on, a row for each; as many as a short while allows, so that
  // other questions need not wait.
  async lens({ ids, changes = [], other = null, first, count }, goesOn = () => true) {
    const memory = await this.reading(this.checked(ids), changes, other, goesOn);
    if (!memory) return null;
    const rows = [], started = performance.now();
    do {
      rows.push(lensAt(this.model, memory, first + rows.length, count).map((row) =>
        ({ ...row, top: row.top.map(({ id, chance }) => ({ text: labelOf(this.tokenizer.tokenText(id)), chance })) })));
    } while (first + rows.length < ids.length && performance.now() - started < 4 * PATIENCE);
    return rows;
  }

  // What patches of a part of ids from the `other` ids, of as many tokens, recover of the difference between the logits of the first
  // tokens of two texts; of an empty one, of the likeliest token after `other`, and after ids but for that: {answer, against, clean, corrupt, shares}, a share being {layer, head, position, recovered}, as
  // gpt patch has them where `other` is the clean text. -1 is no head, and all positions; heads of one `layer` are at each position.
  async patch({ ids, other, part, layer = null, answer = "", against = "" }, goesOn = () => true) {
    if (ids.length !== other.length) throw new Refusal("lengths", ids.length, other.length);
    const recorded = await this.recorded("other", this.checked(other), [part], goesOn);
    const memory = recorded && await this.reading(this.checked(ids), [], null, goesOn);
    if (!memory) return null;
    const [first] = answer ? this.tokenizer.encode(answer) : highest(recorded.logits, 1);
    const second = against ? this.tokenizer.encode(against)[0] : highest(memory.logits, 2).find((id) => id !== first);
    const metric = (logits) => logits[first] - logits[second];
    const [clean, corrupt] = [recorded, memory].map(({ logits }) => metric(logits));
    const gap = Math.abs(clean - corrupt) < LEAST ? NaN : clean - corrupt;
    const patcher = new Patcher(this.model, memory, recorded, part);
    const places = [...placesOf(this.model, part, ids.length, layer)], shares = [];
    for (const place of places) {
      shares.push({ ...place, recovered: (metric(patcher.logits(place)) - corrupt) / gap });
      if (!(await goesOn(shares.length, places.length))) return null;
    }
    const [one, less] = this.texts([first, second]).map(labelOf);
    return { answer: one, against: less, clean, corrupt, shares };
  }

  // The memory of a text read with these changes; two are kept, so that a text can be compared with and without. Null if nobody waits.
  async reading(ids, changes, other, goesOn = () => true) {
    const having = (how) => changes.some((change) => change.how === how);
    const texts = [having("mean") ? ids : null, having("patch") ? other : null]; // that values are taken from
    const name = JSON.stringify([changes, texts]);
    let memory = this.memories.get(name);
    if (!memory) {
      const parts = [...new Set(changes.map(({ part }) => part))];
      const recorded = [];
      for (const [at, which] of ["own", "other"].entries()) {
        recorded.push(texts[at] && await this.recorded(which, this.checked(texts[at]), parts, goesOn));
        if (texts[at] && !recorded[at]) return null;
      }
      memory = new Memory(this.model, this.hooksOf(changes, ...recorded));
    }
    this.memories.delete(name);
    this.memories.set(name, memory);
    if (this.memories.size > 2) this.memories.delete(this.memories.keys().next().value);
    return this.read(memory, ids, goesOn);
  }

  async read(memory, ids, goesOn) {
    for (const done of memory.read(ids)) if (!(await goesOn(done, ids.length))) return null;
    return memory;
  }

  // A hook for each layer.
  hooksOf(changes, own, other) {
    const of = (memory, layer) => memory && { recording: memory.hooks[layer], length: memory.ids.length };
    return this.model.blocks.map(({ attention }, layer) => {
      const found = changes.filter((change) => change.layer === layer);
      return found.length ? new LayerChanges(found, attention.valueSize, of(own, layer), of(other, layer)) : UNTOUCHED;
    });
  }

  // A memory whose hooks keep these parts of what the unchanged model makes of a text; null if nobody waits.
  recorded(which, ids, parts, goesOn) {
    const known = this.recordings.get(which), name = JSON.stringify(parts);
    const { config, blocks } = this.model;
    const memory = known?.name === name ? known.memory : new Memory(this.model, blocks.map(() => new Recording(parts, config.context_length)));
    this.recordings.set(which, { name, memory });
    return this.read(memory, ids, goesOn);
  }

  checked(ids) {
    const { config, vocabSize } = this.model;
    if (ids.length < 1 || ids.length > config.context_length)
      throw new Error(`${ids.length} tokens, where the model reads 1 to ${config.context_length}`);
    for (const id of ids) if (!(Number.isInteger(id) && id >= 0 && id < vocabSize)) throw new Error(`there is no token ${id}`);
    return ids;
  }
}

// What a message hands over instead of copying it: the memory of all arrays in a result.
function handedOver(result) {
  const values = ArrayBuffer.isView(result) ? [result] : Object.values(result ?? {});
  return values.filter((value) => ArrayBuffer.isView(value)).map((value) => value.buffer);
}

const engine = new Engine();
let answered = Promise.resolve(); // once all messages so far are
let numStops = 0;

onmessage = ({ data }) => {
  if (data.stop) numStops += 1;
  else {
    const asked = numStops;
    answered = answered.then(() => answer(data, () => numStops > asked));
  }
};

async function answer({ id, method, args }, isStopped) {
  try {
    const result = await engine[method](args, watch(id, isStopped));
    postMessage({ id, result }, handedOver(result));
  } catch (error) {
    const { message, reason, values } = error;
    postMessage({ id, error: { message, reason, values } });
  }
}

// Tells how far the work on a message is, and lets newer ones come: whether somebody waits for it still.
function watch(id, isStopped) {
  let since = performance.now();
  return async (done, total) => {
    if (performance.now() - since < PATIENCE) return true;
    postMessage({ id, progress: { done, total } });
    await new Promise((resolve) => { setTimeout(resolve); });
    since = performance.now();
    return !isStopped();
  };
}
