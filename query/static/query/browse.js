"use strict";
// Answers name addresses as paths, which the page's own code does not take for links.
(() => {
  const path = /\/api\/v1\/[\w\/.?=&%-]+/g;

  function link(text) {
    const made = document.createDocumentFragment();
    let end = 0;
    for (const found of text.matchAll(path)) {
      const anchor = document.createElement("a");
      anchor.href = anchor.textContent = found[0]; // begins with /api/v1/: never another site, never a script
      anchor.style.textDecoration = "underline";
      made.append(text.slice(end, found.index), anchor);
      end = found.index + found[0].length;
    }
    made.append(text.slice(end));
    return made;
  }

  for (const answer of document.querySelectorAll(".response-info pre")) {
    const walker = document.createTreeWalker(answer, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode);
    for (const text of texts) {
      if (text.data.search(path) !== -1 && text.parentElement.closest("a") === null) text.replaceWith(link(text.data));
    }
  }

  for (const box of document.querySelectorAll("textarea[name=_content]")) {
    box.placeholder = '{"url": "https://example.com/"}';
  }
})();
