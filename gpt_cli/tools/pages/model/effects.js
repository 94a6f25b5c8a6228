// What the changes of activations change, in words.

function showEffects({ words, views, answer }) {
  byId("effect").textContent = changedLoss(words, views.reading.loss, answer);
  byId("changes").textContent = answer.others ? `${changedLogits(words, answer)} ${changedChances(words, answer)}` : "";
}

// How far the logit of the token that was likeliest is above that of the next one.
function changedLogits(words, { now, others }) {
  const [first, second] = [...others.chances].sort((a, b) => b.before - a.before);
  if (!second) return "";
  const apart = ({ logits }) => signed(logits[first.id] - logits[second.id], 3);
  const [one, other] = [first, second].map(({ text }) => quoted(labelOf(text)));
  return words.logits(one, other, apart(others), apart(now));
}

// `others` is what the unchanged model computes, null while it plays.
function changedLoss(words, after, { changes, others }) {
  if (!changes.length) return words.noneOff;
  const names = namesOf(changes, words);
  const before = others && meanSurprisal(others.surprisals);
  if (before === null || after === null) return names;
  return words.effect(names, before.toFixed(4), after.toFixed(4), signed(after - before, 4));
}

// Those that change most, as far as one can see it.
function changedChances(words, { now, others }) {
  const changes = mostChanged(now.chances, others.chances)
    .map(({ text, other, probability }) => [quoted(labelOf(text)), percent(other), percent(probability)])
    .filter(([, before, after]) => before !== after);
  if (!changes.length) return words.unchanged;
  return words.changes(changes.map(([label, before, after]) => `${label} ${before} → ${after}`).join(" · "));
}
