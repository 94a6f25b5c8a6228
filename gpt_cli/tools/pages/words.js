// The words that every page has, in two languages. A page adds its own.
const WORDS = {
  en: {
    light: "light",
    dark: "dark",
    otherLanguage: "中文",
    copied: "copied",
    saved: (name) => `saved as ${name}`,
    old: "This page needs a browser from 2023 or later.",
  },
  zh: {
    light: "浅色",
    dark: "深色",
    otherLanguage: "English",
    copied: "已复制",
    saved: (name) => `已保存为 ${name}`,
    old: "请使用 2023 年或更新的浏览器打开本页面。",
  },
};
