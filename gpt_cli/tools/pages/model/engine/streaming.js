// From ids to text in whole characters, as gpt_cli/sampling/streaming.py shows it while tokens come.

// The text of all tokens so far, without a last character that later tokens may complete: a Chinese one has three bytes.
function textSoFar(tokenizer, ids) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(tokenizer.bytesOf(ids), { stream: true });
}
