// The whole model: token ids in, logits out.

class Block {
  constructor(config, tensors, number) {
    const name = `blocks.${number}`;
    this.norm_1 = normOf(config, tensors, `${name}.norm_1`);
    this.attention = attentionOf(config, tensors, number);
    this.norm_2 = normOf(config, tensors, `${name}.norm_2`);
    this.feedForward = new FeedForward(config, tensors, `${name}.feed_forward`);
    this.preNorm = config.norm_position === "pre";
    this.isParallel = config.parallel_branches;
  }

  // What the heads read, made from the residual stream: [T, D] -> [T, D].
  attentionInput(x) { return this.preNorm ? this.norm_1(x) : x; }

  // The residual stream of new tokens with what the heads add to it: [T, D] -> [T, D].
  attend(x, numTokens, start, cache, hook) {
    const mixed = mix(this.attention, this.attentionInput(x), numTokens, start, cache, hook);
    const added = linear(this.attention.projectionLayer, mixed, numTokens);
    hook.touch("attention", added, numTokens, start);
    return sum(x, added);
  }

  // The same with what the feed-forward part makes of `seen`.
  feed(x, seen, numTokens, start, hook) {
    const added = this.feedForward.forward(seen, numTokens);
    hook.touch("feed_forward", added, numTokens, start);
    return sum(x, added);
  }

  // The residual stream of new tokens [T, D] -> [T, D], with a hook, as changes.js has them.
  forward(x, numTokens, start, cache, hook) {
    const attended = this.attend(x, numTokens, start, cache, hook);
    const normalised = this.preNorm ? this.norm_2(this.isParallel ? x : attended) : this.norm_1(attended);
    const fed = this.feed(this.preNorm ? attended : normalised, normalised, numTokens, start, hook);
    const out = this.preNorm ? fed : this.norm_2(fed);
    hook.touch("residual", out, numTokens, start, x);
    return out;
  }
}

class GPT {
  constructor(config, tensors) {
    this.config = config;
    this.tokenEmbedding = tensors.of("token_embedding.weight");
    this.vocabSize = this.tokenEmbedding.rows;
    this.ngramEmbedding = config.ngram_embedding === null ? null : new NgramEmbedding(config, tensors, this.vocabSize);
    this.positionEmbedding = config.positions === "learned" ? tensors.of("position_embedding.weight") : null;
    this.blocks = Array.from({ length: config.num_blocks }, (_, number) => new Block(config, tensors, number));
    this.finalNorm = normOf(config, tensors, "final_norm");
    this.outputLayer = { weight: config.tie_embeddings ? this.tokenEmbedding : tensors.of("output_layer.weight"), bias: null };
  }

  // The first residual stream of the tokens of ids from `start` on: [T, D].
  embed(ids, start) {
    const { d_model: size, positions } = this.config;
    let x = new Float32Array((ids.length - start) * size);
    for (let place = start; place < ids.length; place++) x.set(this.tokenEmbedding.row(ids[place]), (place - start) * size);
    if (this.ngramEmbedding) x = this.ngramEmbedding.forward(x, ids, start);
    if (positions !== "learned" && positions !== "sinusoidal") return x;
    for (let place = start; place < ids.length; place++) {
      const added = this.position(place);
      for (let column = 0; column < size; column++) x[(place - start) * size + column] += added[column];
    }
    return x;
  }

  // What is added to the embedding of the token at a position: [D].
  position(place) {
    return this.positionEmbedding ? this.positionEmbedding.row(place) : sinusoidal(place, this.config.d_model);
  }

  // The residual stream after all blocks of the tokens from `start` on, which the memory then has too: [T, D].
  forward(ids, start, memory) {
    const numTokens = ids.length - start;
    let x = this.embed(ids, start);
    this.blocks.forEach((block, layer) => {
      memory.streams[layer].put(x, start);
      x = block.forward(x, numTokens, start, memory.caches[layer], memory.hooks[layer]);
    });
    memory.streams.at(-1).put(x, start);
    return x;
  }

  // Logits of the tokens after each of some: the stream after all blocks [T, D] -> [T, V].
  logits(x, numTokens) { return linear(this.outputLayer, this.finalNorm(x), numTokens); }
}
