// What the heads that are switched off change, in words.

function showEffects({ words, views, answer }) {
  byId("effect").textContent = changedLoss(words, views.reading.loss, answer);
  byId("changes").textContent = answer.others ? changedChances(words, answer) : "";
}

// `others` is what the model computes with all heads, null while it plays.
function changedLoss(words, after, { without, others }) {
  if (!without.length) return words.noneOff;
  const names = without.map(([layer, head]) => `L${layer} H${head}`).join(", ");
  const before = others && meanSurprisal(others.surprisals);
  if (before === null || after === null) return words.off(names);
  return words.effect(names, before.toFixed(4), after.toFixed(4), `${after < before ? "−" : "+"}${Math.abs(after - before).toFixed(4)}`);
}

// Those that change most, as far as one can see it.
function changedChances(words, { now, others }) {
  const changes = mostChanged(now.chances, others.chances)
    .map(({ text, other, probability }) => [marked(labelOf(text)), percent(other), percent(probability)])
    .filter(([, before, after]) => before !== after);
  if (!changes.length) return words.unchanged;
  return words.changes(changes.map(([label, before, after]) => `“\u2068${label}\u2069” ${before} → ${after}`).join(" · "));
}
