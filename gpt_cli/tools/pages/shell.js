// What every page does: language and theme, reading its content, copying. Text of the user reaches the document as
// text alone.

const byId = (name) => document.getElementById(name);
const root = document.documentElement;

class Shell {
  // `changed` is called when the language or the theme has changed.
  constructor(changed) {
    this.language = [root.lang, navigator.language].some((language) => language.startsWith("zh")) ? "zh" : "en";
    root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const onClick = (name, change) => byId(name).addEventListener("click", () => {
      change();
      this.speak();
      changed();
    });
    onClick("theme", () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; });
    onClick("language", () => { this.language = this.language === "en" ? "zh" : "en"; });
    this.speak();
  }

  get words() { return WORDS[this.language]; }

  // The words of all elements that name theirs.
  speak() {
    const { words } = this;
    root.lang = this.language === "zh" ? "zh-CN" : "en";
    for (const element of document.querySelectorAll("[data-word]")) element.textContent = words[element.dataset.word];
    for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", words[element.dataset.label]);
    document.title = `${words.title} – gpt`; // a page may say more
    byId("theme").textContent = root.dataset.theme === "dark" ? words.light : words.dark;
    byId("language").textContent = words.otherLanguage;
    byId("status").textContent = "";
  }

  async copy(blob, name) {
    byId("status").textContent = "";
    try {
      await navigator.clipboard.write([new ClipboardItem({ [blob.type]: blob })]);
      byId("status").textContent = this.words.copied;
    } catch { // some browsers give a page from a file no clipboard
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      byId("status").textContent = this.words.saved(link.download);
    }
  }
}

// The binary numbers of a string that Python packed: an ArrayBuffer.
function unpack(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

// An element with a class, which holds texts and other elements.
function element(name, kind = "", ...parts) {
  const made = document.createElement(name);
  made.className = kind;
  made.append(...parts);
  return made;
}

// A name and what belongs to it, in a list of such pairs.
function pairOf(name, ...what) { return element("div", "", element("dt", "", name), element("dd", "", ...what)); }

// A table of texts below titles; with `named`, the first column has titles too.
function tableOf(titles, rows, named = false) {
  const table = element("table");
  for (const [at, cells] of [titles, ...rows].entries())
    table.insertRow().append(...cells.map((text, column) => element(at && (column || !named) ? "td" : "th", "", text)));
  return table;
}

// Fills a select with options [value, text]; where none is the chosen one, it is the first.
function fillSelect(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value, false, value === chosen)));
}

// An element of an SVG, which holds a text or other elements.
function drawn(name, kind, attributes, ...parts) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  made.setAttribute("class", kind);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...parts);
  return made;
}

// Whether a key belongs to the browser or the system, such as Ctrl and an arrow.
function withModifier(event) { return event.altKey || event.ctrlKey || event.metaKey; }

// A label with a sign for the space that it begins with, since words with and without one are different tokens.
function marked(label) { return label.replace(/^ /, "␣"); }

// A text whose writing direction does not affect the text around it.
function isolated(text) { return `\u2068${text}\u2069`; }

function quoted(label) { return `“${isolated(marked(label))}”`; }

function counted(number, noun) { return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`; }

function signed(number, decimals) { return `${Number(number.toFixed(decimals)) < 0 ? "−" : "+"}${Math.abs(number).toFixed(decimals)}`; }

// Makes the page of its content; from then on the document has `data-ready`, with the milliseconds that it took.
async function start(make) {
  if (!("DecompressionStream" in window)) {
    document.body.textContent = `${WORDS.en.old} ${WORDS.zh.old}`;
    return;
  }
  // a browser that saves the page saves what the script made too, so it is made anew
  document.querySelector("main").replaceChildren(byId("parts").content.cloneNode(true));
  await make(JSON.parse(byId("content").textContent));
  root.dataset.ready = Math.round(performance.now());
}
