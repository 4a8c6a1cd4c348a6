// The ? of a chart, which shows on hover how it was made and what its metric means: reached by Tab as well, and read out by a screen reader.
const focusRing = new CSSStyleSheet()
focusRing.replaceSync(`.annotation [role=note]:focus-visible rect.bg { stroke: currentColor !important; stroke-width: 2px !important }
  .annotation [role=note]:focus { outline: none }`)
document.adoptedStyleSheets.push(focusRing)

// Plotly sets lines flush right where a hover opens to the left of its mark; sentences are read from the left.
function flushLeft(div) {
  for (const text of div.querySelectorAll(".hoverlayer .hovertext text.nums")) {
    if (getComputedStyle(text).textAnchor !== "end") continue
    const { width } = text.getBBox()
    for (const line of [text, ...text.querySelectorAll("tspan.line")]) line.setAttribute("x", line.getAttribute("x") - width)
    text.style.textAnchor = "start"
  }
}

function reachable({ div, figure }) {
  for (const group of div.querySelectorAll(".annotation[data-index]")) {
    const words = figure.layout.annotations?.[group.dataset.index]?.hovertext
    const mark = group.querySelector("g.cursor-pointer")
    if (!words || !mark || mark.hasAttribute("tabindex")) continue
    mark.setAttribute("tabindex", "0")
    mark.setAttribute("role", "note")
    mark.setAttribute("aria-label", words.replaceAll(/<br>/g, " ").replaceAll(/<[^>]*>/g, "").replaceAll("&#160;", " "))
    mark.addEventListener("mouseover", () => flushLeft(div))
    mark.addEventListener("focus", () => mark.dispatchEvent(new MouseEvent("mouseover")))
    mark.addEventListener("blur", () => mark.dispatchEvent(new MouseEvent("mouseout")))
  }
}
