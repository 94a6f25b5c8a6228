// What patches recover: grids of layers by positions, of layers by heads, and of the heads of a layer by positions.

const PARTS = ["residual", "attention", "feed_forward"];

// Shares by their places: {recovered, error, estimate}, NaN where there is none.
class PatchResult {
  // `tokens` are {clean, corrupt} labels by position, null where pairs have texts of their own.
  constructor(tokens) {
    this.tokens = tokens;
    this.found = new Map();
    this.seen = { part: new Set(), layer: new Set(), head: new Set(), position: new Set() };
  }

  // A result for each frame.
  static async read({ parts, places, numbers }, tokens) {
    const [where, values] = [new Int32Array(await unpack(places)), new Float32Array(await unpack(numbers))];
    const size = where.length / 4;
    return Array.from({ length: values.length / 3 / size }, (_, frame) => {
      const result = new PatchResult(tokens);
      for (let at = 0; at < size; at++) {
        const [part, layer, head, position] = where.subarray(4 * at, 4 * at + 4);
        const [recovered, error, estimate] = values.subarray(3 * (frame * size + at));
        result.put({ part: parts[part], layer, head, position }, { recovered, error, estimate });
      }
      return result;
    });
  }

  // -1 stands for no head, and for all positions.
  put(place, share) {
    for (const [name, value] of Object.entries(place)) this.seen[name].add(value);
    this.found.set(PatchResult.key(place), share);
  }

  of(place) { return this.found.get(PatchResult.key(place)) ?? null; }

  static key({ part, layer, head, position }) { return `${part} ${layer} ${head} ${position}`; }

  // Those numbers that places have, from -1 on, which comes last where it means all positions.
  all(name) {
    const found = [...this.seen[name]].sort((a, b) => a - b);
    return found[0] === -1 ? [...found.slice(1), -1] : found;
  }

  // The layers in which a part was patched at single positions, or at all at once.
  layersOf(part, single) {
    const places = [...this.found.keys()].map((key) => key.split(" ")).filter(([of, , , position]) => of === part && (position >= 0) === single);
    return [...new Set(places.map(([, layer]) => Number(layer)))].sort((a, b) => a - b);
  }

  // The grids that there are, by name.
  get maps() {
    const parts = PARTS.filter((part) => this.seen.part.has(part));
    const heads = this.layersOf("head", false).length ? ["heads"] : [];
    return [...parts, ...heads, ...this.layersOf("head", true).map((layer) => `heads of ${layer}`)];
  }
}

class PatchView {
  // `chose` is called when another cell is chosen.
  constructor(chose = () => {}) {
    this.grid = new Grid(byId("patch-grid"), chose);
    this.map = null; // the name of the grid that is shown
    byId("patch-map").addEventListener("change", () => {
      this.map = byId("patch-map").value;
      this.show(...this.shown);
      chose();
    });
  }

  // `metrics` {clean, corrupt}: what the metric is without a patch, null where it is not one number.
  show(result, metrics, words) {
    this.shown = [result, metrics, words];
    const { maps } = result;
    if (!maps.includes(this.map)) [this.map] = maps;
    const named = (map) => words.patchMaps[map] ?? words.patchHeadsOf(map.split(" ").at(-1));
    fillSelect(byId("patch-map"), maps.map((map) => [map, named(map)]), this.map);
    this.grid.show({ ...this.content(result, words), label: words.patchLabel(named(this.map)), say: (row, column) => this.say(row, column) });
  }

  // Of the heads of one layer, which; else null.
  get layer() { return this.map.startsWith("heads of ") ? Number(this.map.split(" ").at(-1)) : null; }

  // The place of the chosen cell.
  get chosen() { return this.place(...this.grid.chosen); }

  // The name of a place.
  named(place, words) {
    const token = this.shown[0].tokens[place.position];
    const at = place.position < 0 ? words.patchEverywhere : words.patchAt(place.position, token?.clean ? [quoted(token.clean), quoted(token.corrupt)] : null);
    return words.patchWhere(words.patchParts[place.part], place.layer, place.head, at);
  }

  // Rows, headers, and the place of each cell.
  content(result, words) {
    const { map, layer } = this;
    const layers = result.all("layer"), heads = result.all("head").filter((head) => head >= 0);
    const positions = result.all("position").filter((position) => position >= 0 || result.layersOf(map, false).length);
    if (map === "heads") this.place = (row, column) => ({ part: "head", layer: layers[row], head: heads[column], position: -1 });
    else if (layer !== null) this.place = (row, column) => ({ part: "head", layer, head: heads[row], position: positions[column] });
    else this.place = (row, column) => ({ part: map, layer: layers[row], head: -1, position: positions[column] });
    const cell = (row, column) => {
      const share = result.of(this.place(row, column));
      if (!share) return null;
      const shown = Number.isNaN(share.recovered) ? share.estimate : share.recovered;
      if (Number.isNaN(shown)) return { text: "–", fill: shadeOf("looks", 0) };
      const strength = 0.55 * Math.sqrt(Math.min(1, Math.abs(shown)));
      return { text: numberOf(shown, 2), fill: shadeOf(shown < 0 ? "looked" : "looks", strength) };
    };
    const rows = layer === null ? layers.map((each) => `L${each}`) : heads.map((head) => `L${layer} H${head}`);
    if (map === "heads") return { rows, cell, headers: [heads.map((head) => ({ text: `H${head}` }))] };
    return { rows, cell, headers: ["clean", "corrupt"].map((kind) => positions.map((position) => this.header(result, position, kind, words))) };
  }

  header({ tokens }, position, kind, words) {
    if (position < 0) return { text: kind === "clean" ? words.patchAll : "" };
    const token = tokens[position];
    if (!token?.clean) return { text: kind === "clean" ? String(position) : "" };
    return { text: marked(token[kind]), strong: token.clean !== token.corrupt };
  }

  say(row, column) {
    const [result, { clean, corrupt }, words] = this.shown;
    const place = this.place(row, column), share = result.of(place);
    const where = this.named(place, words);
    if (!share) return [where];
    const { recovered, error, estimate } = share;
    const exact = !Number.isNaN(recovered);
    if (!exact && Number.isNaN(estimate)) return [words.patchNone(where, numberOf(corrupt, 4), numberOf(clean, 4))];
    return [
      exact ? words.patchRecovers(where, numberOf(recovered, 4), Number.isNaN(error) ? null : numberOf(error, 4)) : words.patchNotExact(where),
      ...(!exact || clean === null || corrupt === null ? [] : [words.patchMetric(numberOf(corrupt, 4), numberOf(corrupt + recovered * (clean - corrupt), 4), numberOf(clean, 4))]),
      ...(Number.isNaN(estimate) ? [] : [words.patchEstimate(numberOf(estimate, 4))]),
    ];
  }
}

// A number with a real minus, and none before a zero.
function numberOf(number, decimals) { return number.toFixed(decimals).replace(/^-(0\.?0*)$/, "$1").replace("-", "−"); }
