// The button below a chart that asks for the table behind it; listener.js passes it on. It is drawn here, for Streamlit would go
// through a drawer of its own under every chart each time anything on the page changes.
const below = new CSSStyleSheet()
below.replaceSync(`.rs-numbers { all: unset; display: inline-flex; align-items: center; gap: .35rem; min-height: 24px; font-size: .875rem; cursor: pointer }
  .rs-numbers:is(:hover, :focus-visible) { color: var(--st-primary-color) }
  .rs-numbers:focus-visible { outline: 2px solid; border-radius: 5px }
  .rs-numbers span { font: 1.15rem/1 "Material Symbols Rounded" }`)
document.adoptedStyleSheets.push(below)

function asks(div) {
  const button = Object.assign(document.createElement("button"), { className: "rs-numbers", type: "button" })
  const icon = Object.assign(document.createElement("span"), { textContent: "table_chart", translate: false, ariaHidden: "true" })
  button.append(icon, "numbers")
  button.setAttribute("aria-haspopup", "dialog")
  button.addEventListener("click", () => document.dispatchEvent(new CustomEvent("rs-numbers", { detail: button.value })))
  div.after(button)
  return button
}

function offer(chart, { numbers, alt }) {
  if (numbers) chart.button ??= asks(chart.div)
  else chart.button = void chart.button?.remove()
  if (numbers) Object.assign(chart.button, { value: numbers, ariaLabel: `numbers: ${alt}` })
}
