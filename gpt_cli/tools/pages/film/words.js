// The words of a film.
Object.assign(WORDS.en, { play: "play", pause: "pause", frames: "steps of the training" });
Object.assign(WORDS.zh, { play: "播放", pause: "暂停", frames: "训练步" });
