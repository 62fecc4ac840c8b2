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
})();

// Filters: what was chosen stands there again, and what is empty is not sent (an empty tag is no tag).
(() => {
  const filters = document.getElementById("filters");
  if (filters === null) return;
  for (const choice of filters.querySelectorAll("select")) choice.value = choice.dataset.value;
  filters.addEventListener("submit", () => {
    for (const field of filters.querySelectorAll("input, select")) field.disabled = field.value === "";
  });
})();

// The form for a job, above the box for the raw body, which it fills.
(() => {
  const withoutBody = /\/(jobs\/[\w-]+\/(cancel|retry)|deliveries\/[\w-]+\/replay|webhook-endpoints\/[\w-]+\/test)$/;
  const examples = [
    [/\/jobs(\/plan)?$/, '{"url": "https://example.com/"}'],
    [/\/jobs\/batch$/, '[{"url": "https://example.com/"}]'],
    [/\/webhook-endpoints$/, '{"url": "https://hooks.example.com/jobs"}'],
    [/\/replay$/, '{"since": "2026-11-30T06:00:00Z"}'],
  ];
  const box = document.querySelector("textarea[name=_content]");
  if (box === null) return;
  if (withoutBody.test(location.pathname)) box.form.classList.add("takes-no-body");
  box.placeholder = examples.find(([where]) => where.test(location.pathname))?.[1] ?? "";
  const template = document.getElementById("job-fields");
  if (template === null) return;
  box.form.querySelector("fieldset").prepend(template.content.cloneNode(true));
  const fields = [...box.form.querySelectorAll("[data-field]")];
  const readers = {
    tags: (text) => text.split(",").map((tag) => tag.trim()).filter((tag) => tag !== ""),
    run_at: (text) => new Date(text).toISOString(),
  };

  function write() {
    let job = {};
    try {
      job = JSON.parse(box.value || "{}");
    } catch {
      return; // somebody is writing by hand: leave it alone
    }
    for (const field of fields) {
      const name = field.dataset.field;
      const isDefault = field.value === "" || (field.tagName === "SELECT" && field.selectedIndex === 0);
      if (isDefault) delete job[name];
      else job[name] = (readers[name] ?? String)(field.value);
    }
    box.value = JSON.stringify(job, null, 2);
  }

  for (const field of fields) field.addEventListener("input", write);
})();
