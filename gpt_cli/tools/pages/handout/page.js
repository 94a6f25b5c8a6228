// The first page of a hand-out: the text, and a link to each page beside it.

start(({ handout: { title, prompt, origin, pages } }) => {
  const show = () => {
    const { words } = shell;
    document.querySelector("h1").textContent = title || words.title;
    document.title = `${title || words.title} – gpt`;
    byId("origin").textContent = words.origin(origin);
    byId("prompt").replaceChildren(...words.prompt(element("bdi", "", prompt)));
    byId("pages").replaceChildren(...pages.map((name) => {
      const link = element("a", "", words.names[name]);
      link.href = `${name}.html`;
      return element("li", "", link, element("p", "", words.meanings[name]));
    }));
  };
  const shell = new Shell(show);
  show();
});
