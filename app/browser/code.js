// Code in its colours. It comes in parts, each with its kind.
const colours = new CSSStyleSheet()
colours.replaceSync(`.rs-copied .string { color: light-dark(#0a6b28, #21c354) }
  .rs-copied .number { color: light-dark(#0b6e60, #29b09d) }
  .rs-copied .operator { color: light-dark(#9a4a00, #ed6f13) }
  .rs-copied .name { color: light-dark(#1f66b0, #60b4ff) }
  .rs-copied .aside { color: light-dark(#5b6675, #98a3b3) }`)
document.adoptedStyleSheets.push(colours)

export default function ({ parentElement, data: { parts, tallest } }) {
  const nodes = parts.map(([className, textContent]) => className ? Object.assign(document.createElement("span"), { className, textContent }) : textContent)
  copied(parentElement, nodes, "copy").style.setProperty("--tallest", tallest)
}
