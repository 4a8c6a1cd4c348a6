"use strict";
const root = document.documentElement;
const button = document.getElementById("theme");
const figures = JSON.parse(document.getElementById("figures").textContent);
const places = [...document.querySelectorAll("[data-figure]")];
const system = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Set();
let printing = false;

function theme() {
  return printing ? "light" : root.dataset.theme || (system.matches ? "dark" : "light");
}
function merged(before, changes) { // as drawings.difference made them
  if (changes === null || typeof changes !== "object" || Array.isArray(changes)) return changes;
  const after = Array.isArray(before) ? [...before] : { ...before };
  for (const key in changes) after[key] = merged(before[key], changes[key]);
  return after;
}
function draw(place) {
  const { light, dark } = figures[place.dataset.figure];
  const { data, layout } = structuredClone(theme() === "dark" && dark ? merged(light, dark) : light); // Plotly writes into it
  const width = printing ? (place.classList.contains("wide") ? 690 : 490) : undefined; // with page.css: fits A4 and Letter
  const whole = fitted(layout, width ?? place.clientWidth);
  Plotly.react(place, data, { ...whole, width, autosize: !printing }, config)
    .then(() => reachable({ div: place, figure: { layout: whole } }));
  drawn.add(place);
}
function redraw() {
  button.textContent = theme() === "dark" ? "light" : "dark";
  drawn.forEach(draw);
}

// A chart is drawn when it comes near the window: one in a closed <details> has no width yet.
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
  }
}, { rootMargin: "600px" });

button.addEventListener("click", () => {
  root.dataset.theme = theme() === "dark" ? "light" : "dark";
  redraw();
});
system.addEventListener("change", redraw);

let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details.print:not([open])")];
  for (const element of opened) element.open = true;
  printing = true;
  places.filter((place) => place.offsetParent).forEach(draw);
});
addEventListener("afterprint", () => {
  for (const element of opened) element.open = false;
  printing = false;
  redraw();
});

button.hidden = false;
redraw();
for (const place of places) watcher.observe(place);
