// The text: what the user typed, and the tokens that were added to it since.

class Writing {
  constructor(page, prompt) {
    this.page = page;
    this.typed = prompt;
    this.ids = []; // of the typed text
    this.texts = [];
    this.added = []; // {id, text}
    this.encoded = null; // the text of which `ids` are
    this.refusal = null; // why the typed text has no ids
    this.shown = null; // what showText wrote last
    this.undone = false; // since then, by the browser
    byId("prompt").value = prompt;
    byId("prompt").addEventListener("input", (event) => this.type(event));
    byId("prompt").addEventListener("keydown", (event) => this.takeBack(event));
    byId("prompt").addEventListener("beforeinput", (event) => this.keepBrowser(event));
  }

  get all() { return [...this.ids, ...this.added.map(({ id }) => id)]; }
  get allTexts() { return [...this.texts, ...this.added.map(({ text }) => text)]; }

  type({ inputType }) {
    this.undone ||= inputType === "historyUndo";
    this.typed = byId("prompt").value;
    this.added = [];
    byId("told").textContent = ""; // the text that has ended is another one
    this.page.changed();
  }

  // Ctrl+Z takes back the tokens that were added; what was typed after them, the browser takes back.
  takeBack(event) {
    if (event.key !== "z" || !(event.ctrlKey || event.metaKey) || event.altKey || !this.added.length) return;
    event.preventDefault();
    this.page.act(() => this.page.undo());
  }

  // The browser's steps are older than what the page wrote: taken back there, they would mix with it.
  keepBrowser(event) {
    const { inputType, target } = event;
    const stale = inputType === "historyUndo" ? target.value === this.shown : inputType === "historyRedo" && !this.undone;
    if (this.shown !== null && stale) event.preventDefault();
  }

  // The ids of what is typed, end-of-text where that is nothing, as gpt sample begins; false where the model has no
  // token for a character, which it tells.
  async encode(engine) {
    const { typed } = this;
    if (this.encoded === typed) return true;
    try {
      const { ids, texts } = await engine.call("encode", { text: typed });
      Object.assign(this, { ids, texts, encoded: typed, refusal: null });
    } catch (error) {
      Object.assign(this, { encoded: null, refusal: error });
    }
    this.speak();
    byId("model").classList.toggle("unread", this.refusal !== null);
    return this.refusal === null;
  }

  speak() {
    const { words } = this.page;
    byId("refused").textContent = this.refusal ? sentenceOf(words, this.refusal) + words.unread : "";
  }

  async add(token) {
    this.added.push(token);
    await this.showText();
  }

  async undo() {
    this.added.pop();
    await this.showText();
  }

  // The typed text, then what the added tokens say together: a character may need several of them.
  async showText() {
    const typed = this.typed;
    const { text } = await this.page.engine.call("decode", { ids: this.added.map(({ id }) => id) });
    if (typed !== this.typed) return; // changed meanwhile
    const box = byId("prompt");
    box.value = this.shown = typed + text;
    this.undone = false;
    box.scrollTop = box.scrollHeight;
  }
}
