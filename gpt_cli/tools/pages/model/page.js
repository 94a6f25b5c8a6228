// The page of a model: what is asked of the engine, and what follows from its answers.

const SHORTEST_STEP = 80; // milliseconds of a token while it plays, so that one can follow
const QUIET = 500; // milliseconds of reading, after which the page says how far it is

class ModelPage {
  constructor(engine, opened, content, scores, shell) {
    Object.assign(this, { engine, opened, content, scores, shell });
    this.writing = new Writing(this, content.prompt);
    this.settings = new Settings(() => {
      this.settings.tell(this.words);
      this.changed();
    });
    this.candidates = new Candidates((candidate) => this.act(() => this.add(candidate)));
    this.explaining = new Explaining(this);
    this.second = new Second(this);
    this.patches = new LivePatches(this);
    this.lens = new LiveLens(this);
    this.views = null; // from the first answer on
    this.asking = null; // what resolves once the newest text is answered
    this.acting = Promise.resolve();
    this.playing = false;
    this.pending = 0; // what is under way
    this.failure = null;
    this.progress = null;
    byId("step").addEventListener("click", () => this.act(() => this.step()));
    byId("undo").addEventListener("click", () => this.act(() => this.undo()));
    byId("play").addEventListener("click", () => this.playOrPause());
    byId("prompt").addEventListener("focus", () => this.pause()); // whoever is about to type
    document.addEventListener("keydown", (event) => this.press(event));
  }

  get words() { return this.shell.words; }

  press(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.act(() => this.step());
    else if (event.key === " " && !event.shiftKey && event.target === document.body) this.playOrPause();
    else return;
    event.preventDefault();
  }

  // --- asking

  // The texts, the settings or the changes have changed: asks again, once what is asked now is answered.
  changed() {
    this.stale = true;
    this.engine.stop();
    this.asking ??= this.busyWith(this.askUntilFresh());
    return this.asking;
  }

  // Says to those who cannot see it, and to tests, that more will change.
  async busyWith(work) {
    byId("model").setAttribute("aria-busy", (this.pending += 1) > 0);
    await work;
    byId("model").setAttribute("aria-busy", (this.pending -= 1) > 0);
  }

  async askUntilFresh() {
    this.asked = performance.now();
    while (this.stale) {
      this.stale = false;
      try {
        const readable = await this.writing.encode(this.engine);
        await this.second.encode(this.engine);
        this.showButtons();
        if (readable) await this.ask();
      } catch (error) {
        this.fail(error);
      }
    }
    this.asking = null;
    this.tellProgress(null);
  }

  async ask() {
    const { writing, views, playing } = this;
    const { all: ids, allTexts: texts, added } = writing;
    const other = this.second.ids;
    const start = windowStart(ids.length, this.opened.context_length);
    const changes = (views?.changing.inWindow(start) ?? []).filter(({ how }) => how !== "patch" || other);
    const compared = changes.length > 0 && !playing;
    const count = compared ? NUM_COMPARED : NUM_CANDIDATES;
    const made = JSON.stringify([changes, changes.some(({ how }) => how === "patch") && other]);
    // whether what is known of the beginning of a text holds of a longer one: a mean is of all its tokens
    const grows = this.answer?.made === made && changes.every(({ how }) => how !== "mean");
    const known = grows ? this.answer.ids : []; // whose attention is here
    const [others, now] = await Promise.all([
      compared ? this.look({ ids, had: null }, count) : null,
      this.look({ ids, changes, other, had: known }, count),
    ]);
    if (!now || (compared && !others)) return;
    this.failure = null; // this text, or these changes, give finite numbers again
    byId("failure").hidden = true;
    if (!views) this.makeViews();
    this.answer = { ids: ids.slice(start), texts: texts.slice(start), changes, other, made, grows, others, now };
    this.views.receive(now, texts, added.length, playing);
    this.show();
  }

  // What the model makes of ids with some changes; null if it was stopped.
  look(args, count) {
    const chances = { ...this.settings.values, count };
    return this.engine.call("run", { ...args, chances }, (progress) => this.tellProgress(progress));
  }

  makeViews() {
    const weights = new LiveWeights(this.opened);
    weights.take({ first: 0, attention: new Float32Array(weights.numHeads) }, [""], 0);
    byId("opening").hidden = true;
    byId("model").hidden = false;
    const shown = { colours: this.content.colours, scores: this.scores, writes: new LiveWrites(this) };
    this.views = new HeadViews(this.shell, weights, shown,
      { changed: () => this.changed(), chose: () => this.explaining.show() });
    this.views.speak();
  }

  // How much of a text is read, where that takes long; null once all is shown.
  tellProgress(progress) {
    this.progress = progress && performance.now() - this.asked > QUIET ? progress : null;
    this.showProgress();
  }

  showProgress() {
    const { progress, words } = this;
    byId("model").classList.toggle("behind", progress !== null);
    byId("progress").hidden = progress === null;
    if (progress === null) return;
    const { done, total } = progress;
    Object.assign(byId("progress-bar"), { value: done, max: total });
    byId("progress-said").textContent = words.progress(done, total);
  }

  // --- writing: one thing after another, and playing ends first

  act(what) {
    this.pause();
    this.acting = this.busyWith(this.acting.then(what).catch((error) => this.fail(error)));
    return this.acting;
  }

  async add({ id, text }) {
    if (this.writing.refusal) return; // nothing follows from a text that the model cannot read
    byId("told").textContent = "";
    await this.writing.add({ id, text });
    await this.changed();
  }

  async undo() {
    byId("told").textContent = "";
    await this.writing.undo();
    await this.changed();
  }

  // Draws a token and adds it; false where the text ends there, or where the model cannot read it.
  async step() {
    const { writing, engine, settings } = this;
    await this.changed(); // the draw is from what follows the text as it is
    if (writing.refusal || this.failure) return false;
    const { typed } = writing;
    const id = await engine.call("draw", { ...settings.values, seed: settings.seed, index: writing.added.length });
    if (id === this.opened.end_of_text) {
      byId("told").textContent = this.words.ended;
      return false;
    }
    const { texts } = await engine.call("decode", { ids: [id] });
    if (typed === writing.typed) await this.add({ id, text: texts[0] });
    return true;
  }

  playOrPause() {
    if (this.playing) return this.pause();
    this.act(async () => {
      const { typed } = this.writing;
      for (let more = true; more && this.playing && typed === this.writing.typed;) {
        const started = performance.now();
        more = await this.step();
        await new Promise((resolve) => { setTimeout(resolve, SHORTEST_STEP - (performance.now() - started)); });
      }
      this.pause();
    });
    this.playing = true; // before that begins
    this.showButtons();
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    this.showButtons();
    this.changed(); // what all heads would have said was left out meanwhile
  }

  // --- what is on the page

  fail(error) {
    this.playing = false;
    this.failure = error;
    showFailure(this.words, error);
    this.showButtons();
  }

  speakAndShow() {
    this.speak();
    this.views?.show();
    this.show();
  }

  speak() {
    const { words, opened } = this;
    const { origin } = this.content;
    document.querySelector("h1").textContent = this.content.title || words.title;
    document.title = `${this.content.title || `${words.title}: ${origin.run}`} – gpt`;
    byId("sizes").textContent = words.sizes(opened.num_layers, opened.num_heads, opened.context_length, origin.context_length);
    byId("origin").textContent = words.origin(origin);
    if (this.failure) showFailure(words, this.failure);
    this.writing.speak();
    this.showProgress();
    this.settings.speak(words);
    this.showButtons();
    this.views?.speak();
    this.explaining.speak();
  }

  showButtons() {
    byId("play").textContent = this.playing ? this.words.pause : this.words.play;
    byId("step").disabled = byId("play").disabled = this.writing.refusal !== null;
    disable("undo", this.writing.added.length === 0, "step");
  }

  show() {
    if (!this.answer) return;
    const { now, others } = this.answer;
    this.showButtons();
    this.candidates.show(now.chances, others?.chances ?? null, this.words);
    showEffects(this);
    this.explaining.show();
    this.second.show();
    this.patches.show();
    this.lens.show();
  }
}

// The focus of a button that is disabled goes to another one: without a focus, Space would play.
function disable(name, disabled, other) {
  if (disabled && document.activeElement === byId(name)) byId(other).focus();
  byId(name).disabled = disabled;
}

function showFailure(words, error) {
  byId("opening").hidden = true;
  byId("failure").hidden = false;
  byId("failure").textContent = words.failed(sentenceOf(words, error));
}

// An error in the language of the page, where the engine gave its reason.
function sentenceOf(words, { reason, values, message }) { return reason ? words.reasons[reason](...values) : message; }

start(async (content) => {
  let page = null;
  const shell = new Shell(() => page?.speakAndShow());
  byId("opening-said").textContent = shell.words.opening(content.origin);
  try {
    const engine = new EngineCaller();
    // weights are in an element of their own, which the engine alone reads
    const opened = await engine.call("open", { content, weights: byId("data").textContent });
    const induction = new Float32Array(await unpack(content.scores.numbers));
    const scores = new LiveScores(content.scores, induction, induction.length);
    page = new ModelPage(engine, opened, content, scores, shell);
    page.speak();
    await page.changed();
  } catch (error) {
    showFailure(shell.words, error);
  }
});
