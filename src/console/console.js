// All of this is for comfort: every page works without it.
"use strict";

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const copied = document.getElementById(button.dataset.copy);
    await navigator.clipboard.writeText(copied.href ?? copied.textContent);
    button.textContent = "Copied";
  });
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = document.getElementById("q");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

let isUnsaved = false;
for (const form of document.querySelectorAll("main form[method=post]")) {
  form.addEventListener("input", () => {
    isUnsaved = true;
  });
  form.addEventListener("submit", () => {
    isUnsaved = false;
  });
}
window.addEventListener("beforeunload", (event) => {
  if (isUnsaved) {
    event.preventDefault();
  }
});
