"use strict";
// Pages of a run without a server: the chosen theme is kept, keys lead to pages, and a file of all pages shows one at a time.
// page.js of the report, which draws the charts, follows.
const kept = "ratioscope-theme";
try {
  const chosen = localStorage.getItem(kept);
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a browser may keep nothing for files */ }

document.getElementById("theme").addEventListener("click", () => setTimeout(() => {
  try {
    localStorage.setItem(kept, document.documentElement.dataset.theme);
  } catch { /* as above */ }
}));

const sections = [...document.querySelectorAll("section.page")];
const links = [...document.querySelectorAll("nav a")];

function show() {
  const wanted = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest("section.page") ?? sections[0];
  for (const section of sections) section.hidden = section !== wanted;
  for (const link of links) { // those of the head lead to the first page of each topic
    const here = link.closest(".tabs") ? wanted.id : wanted.dataset.lead;
    if (link.hash === `#${here}`) link.setAttribute("aria-current", here === wanted.id ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
}
if (sections.length > 1) {
  show();
  addEventListener("hashchange", () => { show(); scrollTo(0, 0); });
}

let waiting = false; // for the letter after g
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select")) return;
  const place = waiting ? pages[event.key] : undefined;
  waiting = event.key === "g" && !waiting;
  if (place) location.assign(place);
  else if (event.key === "t" && !waiting) document.getElementById("theme").click();
});
