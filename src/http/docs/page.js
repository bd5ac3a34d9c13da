// The page works without this script. The script fills in the address of this server, adds buttons
// that copy, and remembers the language.

// The reference was at /docs before. Old links to its operations still work.
if (location.hash.startsWith("#/")) {
  location.replace("/docs/reference" + location.hash);
}

// The address in the browser works, also behind a proxy.
if (/^https?:\/\/[\w.:[\]-]+$/.test(location.origin)) {
  for (const place of document.querySelectorAll(".origin")) {
    place.textContent = location.origin;
  }
}

if (navigator.clipboard) {
  for (const block of document.querySelectorAll("pre:not(.output)")) {
    const frame = document.createElement("div");
    frame.className = "code";
    block.replaceWith(frame);
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.onclick = async () => {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    };
    frame.append(block, button);
  }
}

try {
  document.getElementById(localStorage.getItem("language"))?.click();
  document.addEventListener("change", (event) => {
    localStorage.setItem("language", event.target.id);
  });
} catch {
  // The browser stores nothing for this page.
}
