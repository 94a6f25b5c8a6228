// A second text: activations are taken from it, and a map shows which of them bring its prediction.

class Second {
  constructor(page) {
    this.page = page;
    this.ids = this.texts = null; // of what the model reads of it; null where there is nothing
    this.encoded = "";
    this.refusal = null;
    byId("other").addEventListener("input", () => page.changed());
  }

  // As Writing does; patches have no effect without ids.
  async encode(engine) {
    const { value } = byId("other");
    if (this.encoded === value) return;
    try {
      const { ids, texts } = value ? await engine.call("encode", { text: value }) : { ids: null, texts: null };
      const most = this.page.opened.context_length;
      Object.assign(this, { ids: ids?.slice(0, most) ?? null, texts: texts?.slice(0, most) ?? null, encoded: value, refusal: null });
    } catch (error) {
      Object.assign(this, { ids: null, texts: null, encoded: null, refusal: error });
    }
  }

  // Whether it has as many tokens as what the model reads of the first text.
  get isLike() { return this.ids?.length === this.page.answer.ids.length; }

  show() {
    const { words, answer } = this.page;
    const { ids, refusal } = this;
    const unlike = this.isLike ? String(ids) === String(answer.ids) && words.same : ids && words.unlike(answer.ids.length, ids.length);
    byId("other-told").textContent = refusal ? sentenceOf(words, refusal) : unlike || "";
  }
}

// The map of what patches from the second text recover, a part of it after the other as the reader asks.
class LivePatches {
  constructor(page) {
    this.page = page;
    this.view = new PatchView();
    this.computing = false;
    this.of = null; // the texts that the shares belong to
    byId("patch-go").addEventListener("click", () => (this.computing ? page.changed() : page.busyWith(this.compute())));
    for (const name of ["answer", "against"]) byId(name).addEventListener("change", () => this.show());
    byId("second").addEventListener("toggle", () => this.show());
  }

  // The tokens whose logits are compared, as the reader writes them.
  get compared() { return { answer: byId("answer").value, against: byId("against").value }; }

  // Both texts as the grid has them, or null where there is no map.
  get texts() {
    const { answer, second, opened } = this.page;
    if (!second.isLike || String(second.ids) === String(answer.ids)) return null;
    return { ids: answer.ids, other: second.ids, tokens: answer.texts.map((text, at) => ({ clean: labelOf(second.texts[at]), corrupt: labelOf(text) })), opened };
  }

  show() {
    if (!this.page.answer) return;
    if (!byId("second").open) return;
    const { words } = this.page, { texts } = this;
    byId("patches").hidden = texts === null;
    if (!texts) return;
    const of = JSON.stringify([texts.ids, texts.other, this.compared]);
    if (this.of !== of) Object.assign(this, { of, result: new LivePatchResult(texts), metrics: { clean: null, corrupt: null }, told: null });
    this.view.show(this.result, this.metrics, words);
    byId("patch-go").textContent = this.computing ? words.patchStop : words.patchGo;
    byId("patch-told").textContent = this.told ? words.patchOf(...["answer", "against"].map((name) => quoted(this.told[name])), numberOf(this.told.corrupt, 4), numberOf(this.told.clean, 4)) : "";
  }

  async compute() {
    const { page, compared, texts } = this;
    if (!texts) return; // the second text has just become another one
    const { layer } = this.view, part = this.view.map.startsWith("heads") ? "head" : this.view.map;
    this.computing = true;
    page.second.show(); // without an earlier refusal
    this.show();
    const { of } = this, { ids, other } = texts;
    byId("patch-progress").hidden = false;
    try {
      const found = await page.engine.call("patch", { ids, other, part, layer, ...compared }, ({ done, total }) => Object.assign(byId("patch-progress"), { value: done, max: total }));
      if (found && this.of === of) {
        Object.assign(this, { told: found, metrics: found });
        for (const { layer, head, position, recovered } of found.shares) this.result.put({ part, layer, head, position }, { recovered, error: NaN, estimate: NaN });
      }
    } catch (error) {
      if (error.reason) byId("other-told").textContent = sentenceOf(page.words, error); // a character that the model lacks
      else page.fail(error);
    }
    this.computing = false;
    byId("patch-progress").hidden = true;
    this.show();
  }
}

// Shares that come later, of which the places are known.
class LivePatchResult extends PatchResult {
  constructor({ ids, tokens, opened: { num_layers, num_heads } }) {
    super(tokens);
    const numbers = { layer: num_layers, head: num_heads, position: ids.length };
    for (const [name, count] of Object.entries(numbers)) this.seen[name] = new Set(Array(count).keys());
  }

  get maps() { return [...PARTS, "heads", ...[...this.seen.layer].map((layer) => `heads of ${layer}`)]; }
}

// The lens of the text, asked of the engine in small parts while it is in view.
class LiveLens {
  constructor(page) {
    Object.assign(this, { page, view: new LensView(), rows: [], of: null, words: page.words, asking: false, inView: false });
    this.layers = [...Array(page.opened.num_layers).keys()];
    byId("lens").hidden = false;
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.inView = isIntersecting;
      this.show();
    }).observe(byId("lens"));
  }

  // A cell that is not computed is empty.
  at(row, token) {
    const found = this.rows[token]?.[row];
    return found ? { ...found, ...found.top[0] } : null;
  }

  show() {
    const { page } = this;
    if (!page.answer) return;
    if (this.of !== page.answer) this.begin(page.answer);
    if (!this.inView && this.words === page.words) return; // a key should not wait for what nobody sees
    this.words = page.words;
    this.view.show({ layers: this.layers, of: (row, token) => this.at(row, token) }, page.views.weights.labels, page.words);
    if (this.inView && !this.asking && this.rows.length < this.of.ids.length) page.busyWith(this.ask());
  }

  // Of a text that goes on, what was known of its beginning stays, but for the last token, whose next one may have come.
  begin(answer) {
    const same = this.of && answer.grows && String(this.of.ids.slice(0, -1)) === String(answer.ids.slice(0, this.of.ids.length - 1));
    this.rows = same ? this.rows.slice(0, this.of.ids.length - 1) : [];
    this.of = answer;
  }

  async ask() {
    const { page } = this;
    this.asking = true;
    try {
      while (this.inView && !page.stale && !page.playing && this.rows.length < this.of.ids.length) {
        const { of } = this, { ids, changes, other } = of;
        const rows = await page.engine.call("lens", { ids, changes, other, first: this.rows.length, count: NUM_WRITTEN });
        if (!rows || of !== this.of) continue;
        this.rows.push(...rows);
        this.show();
      }
    } catch (error) {
      page.fail(error);
    }
    this.asking = false;
  }
}
