// The page itself: what is chosen, and what follows from it. Text of the user reaches the document by textContent alone.

const byId = (name) => document.getElementById(name);
const root = document.documentElement;

class Page {
  constructor(weights) {
    this.weights = weights;
    // the view: places of a layer and a head, null for the mean; `hovered` comes before `chosen`; `pointed` is [query, key]
    this.layer = 0;
    this.head = 0;
    this.chosen = weights.numTokens - 1;
    this.hovered = null;
    this.pointed = null;
    this.threshold = 0;
    this.palette = paletteOf(weights.colours);
    this.language = navigator.language.startsWith("zh") ? "zh" : "en";
    root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    this.buildHeads();
    this.texts = this.buildTokens(byId("text"), weights.labels.map((label) => label.text), "token");
    this.lookers = this.buildTokens(byId("lookers"), weights.labels.map((label) => label.short));
    this.targets = this.buildTokens(byId("targets"), weights.labels.map((label) => label.short));
    this.listen();
    this.speak();
    this.show();
    this.bringToView();
  }

  get words() { return WORDS[this.language]; }
  get token() { return this.hovered ?? this.chosen; }

  // --- the parts of the page that never change

  buildHeads() {
    const { layers, heads } = this.weights;
    this.buttons = [];
    const table = byId("heads");
    const columns = [...heads.keys(), ...(heads.length > 1 ? [null] : [])];
    const rows = layers.map((_, layer) => [layer, columns]);
    if (layers.length > 1) rows.push([null, [...heads.map(() => undefined), null].slice(-columns.length)]);
    const title = table.insertRow();
    title.append(document.createElement("td"));
    for (const head of columns) title.append(this.headCell({ head }));
    table.style.setProperty("--columns", columns.length);
    for (const [layer, cells] of rows) {
      const row = table.insertRow();
      row.append(this.headCell({ layer }));
      this.buttons.push(cells.map((head) => {
        const cell = row.insertCell();
        if (head === undefined) return null;
        const button = document.createElement("button");
        button.append(document.createElement("canvas"));
        button.tabIndex = -1;
        Object.assign(button, { layer, head });
        cell.append(button);
        return button;
      }));
    }
  }

  headCell(of) {
    const cell = document.createElement("th");
    cell.scope = "layer" in of ? "row" : "col";
    cell.of = of;
    return cell;
  }

  buildTokens(parent, labels, name) {
    return labels.map((label, token) => {
      const span = document.createElement("span");
      span.textContent = label;
      if (name) {
        span.className = name;
        span.tabIndex = -1;
        span.setAttribute("role", "button");
        span.classList.toggle("generated", token >= this.weights.numTokens - this.weights.generated.length);
      }
      span.token = token;
      parent.append(span);
      return span;
    });
  }

  // --- what the user does

  listen() {
    byId("heads").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.take(button);
    });
    byId("heads").addEventListener("keydown", (event) => this.walkHeads(event));
    for (const name of ["text", "lookers", "targets"]) {
      byId(name).addEventListener("pointerover", (event) => this.hover(event.target.token ?? null, name === "text"));
      byId(name).addEventListener("pointerleave", () => this.hover(null, false));
      byId(name).addEventListener("click", (event) => event.target.token !== undefined && this.choose(event.target.token));
    }
    byId("text").addEventListener("focusin", (event) => this.choose(event.target.token));
    byId("text").addEventListener("keydown", (event) => this.walkTokens(event));
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.choose(null));
    byId("map").addEventListener("pointermove", (event) => this.point(event));
    byId("map").addEventListener("click", (event) => this.point(event)); // of a finger, which does not move first
    byId("map").addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.hover(null, false));
    byId("threshold").addEventListener("input", (event) => {
      this.threshold = (event.target.value / 100) ** 2; // fine steps where weights are small
      this.show();
    });
    byId("copy-csv").addEventListener("click", () => this.copyCsv());
    byId("copy-png").addEventListener("click", () => this.copyPng());
    window.addEventListener("resize", () => this.show());
    byId("theme").addEventListener("click", () => {
      root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
      this.speak();
      this.show();
    });
    byId("language").addEventListener("click", () => {
      this.language = this.language === "en" ? "zh" : "en";
      this.speak();
      this.show();
    });
  }

  take(button) {
    this.layer = button.layer;
    this.head = button.head;
    this.show();
  }

  walkHeads(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const row = this.buttons.findIndex((cells) => cells.includes(event.target));
    const next = this.buttons[row + down]?.[this.buttons[row].indexOf(event.target) + right];
    if (!next || next === event.target) return;
    event.preventDefault();
    this.take(next);
    next.focus();
  }

  walkTokens(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(event.target.token);
    }
    const last = this.weights.numTokens - 1;
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -last, End: last }[event.key];
    if (!step) return;
    event.preventDefault();
    this.texts[Math.max(0, Math.min(last, event.target.token + step))].focus();
  }

  // `bring`: also bring it to view in the rows, which would run away below a pointer that is on them.
  hover(token, bring) {
    if (token === this.hovered && this.pointed === null) return;
    this.hovered = token;
    this.pointed = null;
    this.showToken();
    if (bring) this.bringToView();
  }

  choose(token) {
    this.chosen = token;
    this.hovered = this.pointed = null;
    this.showToken();
    this.bringToView();
  }

  point(event) {
    const place = (distance) => Math.floor((distance - this.cells.margin) / this.cells.cell);
    const [key, query] = [place(event.offsetX), place(event.offsetY)];
    const inside = query >= 0 && query < this.weights.numTokens && key >= 0 && key <= query;
    this.hovered = inside ? query : null;
    this.pointed = inside ? [query, key] : null;
    this.showToken();
    if (inside) this.bringToView();
  }

  // --- the parts that follow from a choice

  weight(query, key) {
    return this.weights.of(this.layer, this.head)[query * this.weights.numTokens + key];
  }

  // With its position, since words return; isolated, so that a token's direction of writing leaves the numbers alone.
  quoted(token) { return `“\u2068${this.weights.labels[token].text}\u2069” (${token})`; }

  // All words of the page, in its language.
  speak() {
    const { words, weights } = this;
    root.lang = this.language === "zh" ? "zh-CN" : "en";
    const { origin } = weights;
    document.title = `${words.title}${origin ? `: ${origin.prompt}` : ""} – gpt`;
    byId("origin").textContent = origin ? words.origin(`\u2068${origin.prompt}\u2069`, origin.checkpoint, origin.step) : "";
    for (const element of document.querySelectorAll("[data-word]")) element.textContent = words[element.dataset.word];
    for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", words[element.dataset.label]);
    byId("sizes").textContent = words.sizes(weights.layers.length, weights.heads.length, weights.numTokens);
    byId("theme").textContent = root.dataset.theme === "dark" ? words.light : words.dark;
    byId("language").textContent = words.otherLanguage;
    byId("status").textContent = "";
    byId("scale-ends").textContent = words.scale;
    byId("precision").textContent = words.precision(weights.levels, (0.25 / weights.levels ** 2).toExponential(0));
    for (const cell of byId("heads").querySelectorAll("th")) {
      const { layer, head } = cell.of;
      if (layer === null || head === null) cell.textContent = words.average;
      else cell.textContent = layer === undefined ? words.head(weights.heads[head]) : words.layer(weights.layers[layer]);
    }
    for (const button of this.buttons.flat()) if (button) button.setAttribute("aria-label", this.name(button.layer, button.head));
    const scale = byId("scale").getContext("2d");
    for (let x = 0; x < 256; x++) {
      scale.fillStyle = `rgb(${colourOf(weights.colours, (x / 255) ** 2)})`;
      scale.fillRect(x, 0, 1, 10);
    }
  }

  name(layer, head) {
    const { words, weights } = this;
    if (layer === null) return words.averageOfAll(weights.layers.length * weights.heads.length);
    const second = head === null ? words.averageOf(weights.heads.length) : words.head(weights.heads[head]);
    return `${words.layer(weights.layers[layer])} ${second}`;
  }

  // Everything that the chosen head or the threshold changes.
  show() {
    const { weights, threshold } = this;
    byId("threshold-shown").textContent = threshold.toFixed(4);
    byId("threshold").setAttribute("aria-valuetext", threshold.toFixed(4));
    byId("head-name").textContent = this.name(this.layer, this.head);
    for (const button of this.buttons.flat()) {
      if (!button) continue;
      const pressed = button.layer === this.layer && button.head === this.head;
      button.setAttribute("aria-pressed", pressed);
      button.tabIndex = pressed ? 0 : -1;
      if (button.threshold !== threshold)
        drawSmall(button.firstChild, weights.of(button.layer, button.head), weights.numTokens, threshold, this.palette);
      button.threshold = threshold;
    }
    const short = weights.labels.map((label) => label.short);
    const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`);
    this.cells = drawLarge(byId("map"), weights.of(this.layer, this.head), short, threshold,
      { palette: this.palette, ink: colour("ink"), ground: colour("ground"), room: byId("map-frame").clientWidth });
    this.showToken();
  }

  // Everything that the token under the pointer changes.
  showToken() {
    const { token, texts, lookers, targets, words } = this;
    // half as strong as a line: text stays readable on it
    const shade = (colour, weight) => `rgb(var(--${colour}) / ${(0.5 * Math.sqrt(weight)).toFixed(3)})`;
    const shown = (query, key) => {
      const weight = key <= query ? this.weight(query, key) : 0;
      return weight < this.threshold ? 0 : weight;
    };
    texts.forEach((span, other) => {
      const [looks, looked] = token === null ? [0, 0] : [shown(token, other), shown(other, token)];
      span.style.backgroundColor = targets[other].style.backgroundColor = shade("looks", looks);
      span.style.borderBottomColor = `rgb(var(--looked) / ${Math.sqrt(looked).toFixed(3)})`;
      lookers[other].style.backgroundColor = shade("looked", looked);
      for (const one of [span, lookers[other], targets[other]]) one.classList.toggle("chosen", other === token);
      span.setAttribute("aria-pressed", other === token);
      span.tabIndex = other === (this.chosen ?? 0) ? 0 : -1;
    });
    drawLines(byId("between"), lookers, targets, token, shown);
    byId("details").replaceChildren(...this.sentences(shown).map((sentence) => {
      const line = document.createElement("p");
      line.textContent = sentence;
      return line;
    }));
    const [query, key] = this.pointed ?? [];
    byId("cell").textContent = this.pointed === null ? ""
      : words.cell(this.quoted(query), this.quoted(key), this.weight(query, key).toFixed(4));
  }

  // The chosen token in the middle of its row, where the rows are wider than the page.
  bringToView() {
    const span = this.lookers[this.token];
    if (span) byId("lines").scrollLeft = span.offsetLeft - byId("lines").clientWidth / 2;
  }

  // The five strongest of each direction, in words.
  sentences(shown) {
    const { token, words, weights } = this;
    if (token === null) return [];
    const others = weights.tokens.map((_, other) => other);
    const list = (pairs) => pairs.filter(([, weight]) => weight > 0).sort((a, b) => b[1] - a[1]).slice(0, 5)
      .map(([other, weight]) => `${this.quoted(other)} ${weight.toFixed(4)}`).join(" · ") || words.nothing;
    const written = weights.generated[token - weights.numTokens + weights.generated.length];
    return [
      words.looksAt(this.quoted(token)) + list(others.map((key) => [key, shown(token, key)])),
      words.lookedAtBy(this.quoted(token)) + list(others.map((query) => [query, shown(query, token)])),
      ...(written ? [words.generated(written.probability.toFixed(4), written.rank)] : []),
    ];
  }

  // --- what the user takes away

  copyCsv() {
    const blob = new Blob([this.weights.csv(this.layer, this.head)], { type: "text/plain" });
    this.copy(blob, "csv");
  }

  copyPng() {
    byId("map").toBlob((blob) => this.copy(blob, "png"));
  }

  async copy(blob, ending) {
    byId("status").textContent = "";
    try {
      await navigator.clipboard.write([new ClipboardItem({ [blob.type]: blob })]);
      byId("status").textContent = this.words.copied;
    } catch { // some browsers give a page from a file no clipboard
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = `attention.${ending}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      byId("status").textContent = this.words.saved(link.download);
    }
  }
}

if ("DecompressionStream" in window) readWeights().then((weights) => {
  new Page(weights);
  root.dataset.ready = Math.round(performance.now()); // milliseconds
});
else document.body.textContent = `${WORDS.en.old} ${WORDS.zh.old}`;
