// The words that every page has, or several, in two languages. A page adds its own.
const WORDS = {
  en: {
    light: "light",
    dark: "dark",
    otherLanguage: "中文",
    copied: "copied",
    saved: (name) => `saved as ${name}`,
    play: "play",
    pause: "pause",
    frames: "steps of the training",
    moment: (step, loss = null) => `step ${step}${loss === null ? "" : ` · loss ${loss}`}`,
    origin: (text, checkpoint, step) => `“${text}” · ${checkpoint}, step ${step}`,
    old: "This page needs a browser from 2023 or later.",
  },
  zh: {
    light: "浅色",
    dark: "深色",
    otherLanguage: "English",
    copied: "已复制",
    saved: (name) => `已保存为 ${name}`,
    play: "播放",
    pause: "暂停",
    frames: "训练步",
    moment: (step, loss = null) => `第 ${step} 步${loss === null ? "" : ` · 损失 ${loss}`}`,
    origin: (text, checkpoint, step) => `“${text}” · ${checkpoint}，第 ${step} 步`,
    old: "请使用 2023 年或更新的浏览器打开本页面。",
  },
};
