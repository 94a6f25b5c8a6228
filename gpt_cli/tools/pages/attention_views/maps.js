// Maps of weights as pictures on canvases.

// `steps` are colours for square roots of weights at even distances from 0 to 1; between them we go straight.
function colourOf(steps, weight) {
  const place = Math.sqrt(weight) * (steps.length - 1);
  const step = Math.min(steps.length - 2, Math.floor(place));
  const parts = (colour) => [0, 2, 4].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const [low, high] = [parts(steps[step]), parts(steps[step + 1])];
  return low.map((part, at) => Math.round(part + (high[at] - part) * (place - step)));
}

// 1024 colours for square roots of weights from 0 to 1; 32 bits each, as a canvas stores them.
function paletteOf(steps) {
  return Uint32Array.from({ length: 1024 }, (_, place) => {
    const [red, green, blue] = colourOf(steps, (place / 1023) ** 2);
    return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
  });
}

// A square of dots for the weights of a map; nothing above the diagonal. Where there are more weights than dots,
// a dot is the largest of its weights: a mean would hide the narrow lines that heads draw.
function dots(map, numTokens, side, threshold, palette) {
  const largest = new Float32Array(side * side).fill(-1);
  const ends = Int32Array.from({ length: side }, (_, dot) => Math.ceil(((dot + 1) * numTokens) / side)); // of its tokens
  for (let query = 0, down = 0; query < numTokens; query++) {
    if (query === ends[down]) down += 1;
    const row = placeInMap(query, 0);
    for (let key = 0, dot = 0; key <= query; dot++) {
      const end = Math.min(ends[dot], query + 1), at = down * side + dot;
      let found = largest[at];
      for (; key < end; key++) if (map[row + key] > found) found = map[row + key];
      largest[at] = found;
    }
  }
  const image = new ImageData(side, side);
  const pixels = new Uint32Array(image.data.buffer);
  for (let dot = 0; dot < pixels.length; dot++) {
    const weight = largest[dot];
    if (weight >= 0) pixels[dot] = palette[weight < threshold ? 0 : Math.min(1023, Math.round(Math.sqrt(weight) * 1023))];
  }
  return image;
}

// In at most `room` dots across.
function drawSmall(canvas, map, numTokens, room, threshold, palette) {
  const side = Math.max(1, Math.min(numTokens, room));
  if (canvas.width !== side || canvas.height !== side) canvas.width = canvas.height = side;
  canvas.getContext("2d").putImageData(dots(map, numTokens, side, threshold, palette), 0, 0);
}

// Whether a label above a column needs no turn: a single character, or Chinese, written downwards.
function isUpright(label) {
  return [...label].length === 1 || /^[\u2e80-\uffef]+$/.test(label);
}

// The map of one head with a label for each token, or as many as stay readable, in `room` pixels across where cells of
// two pixels fit there. Returns where the cells are.
function drawLarge(canvas, map, labels, threshold, palette, room) {
  const T = labels.length, style = getComputedStyle(root);
  const context = canvas.getContext("2d");
  const font = "12px ui-monospace, monospace";
  context.font = font;
  const margin = 8 + Math.ceil(Math.max(12, ...labels.map((label) => context.measureText(label).width)));
  const cell = Math.max(2, Math.min(26, Math.floor((room - margin) / T)));
  const size = margin + T * cell;
  const density = Math.min(window.devicePixelRatio, 8192 / size);
  canvas.width = canvas.height = Math.ceil(size * density);
  canvas.style.width = canvas.style.height = `${size}px`;
  context.scale(density, density);
  context.fillStyle = style.getPropertyValue("--ground"); // a copy of the picture has it too
  context.fillRect(0, 0, size, size);
  context.imageSmoothingEnabled = false;
  const picture = new OffscreenCanvas(T, T);
  picture.getContext("2d").putImageData(dots(map, T, T, threshold, palette), 0, 0);
  context.drawImage(picture, margin, margin, T * cell, T * cell);
  context.font = font;
  context.fillStyle = style.getPropertyValue("--ink");
  context.textBaseline = "middle";
  const every = Math.ceil(12 / cell);
  for (let token = 0; token < T; token += every) {
    const middle = margin + (token + 0.5) * cell;
    context.textAlign = "right";
    context.fillText(labels[token], margin - 4, middle);
    if (isUpright(labels[token])) {
      const characters = [...labels[token]];
      context.textAlign = "center";
      characters.forEach((character, at) => context.fillText(character, middle, margin - 4 - (characters.length - at - 0.5) * 12));
      continue;
    }
    context.save();
    context.translate(middle, margin - 4);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(labels[token], 0, 0);
    context.restore();
  }
  return { cell, margin };
}
