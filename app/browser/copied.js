// Words to copy: in a frame, with a button that copies all of them.
const framed = new CSSStyleSheet()
framed.replaceSync(`.rs-copied { display: flex; align-items: start; gap: .5rem; border-radius: .5rem;
    background: var(--st-code-background-color, var(--st-secondary-background-color)) }
  .rs-copied pre { flex: 1; min-width: 0; max-height: var(--tallest, none); overflow: auto; margin: 0; padding: .75rem;
    white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.55 var(--st-code-font, monospace) }
  .rs-copied button { all: unset; padding: .5rem; cursor: pointer; opacity: .74; font: 1.25rem/1 "Material Symbols Rounded" }
  .rs-copied button:is(:hover, :focus-visible) { color: var(--st-primary-color); opacity: 1 }
  .rs-copied button:focus-visible { outline: 2px solid; border-radius: 5px }`)
document.adoptedStyleSheets.push(framed)

// The frame in this place, made once. parts: texts and nodes, one after the other. name: of the button.
function copied(place, parts, name) {
  const frame = place.querySelector(".rs-copied") ?? place.appendChild(document.createElement("div"))
  frame.className = "rs-copied"
  const words = Object.assign(document.createElement("pre"), { tabIndex: 0 })
  words.append(...parts)
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "content_copy", translate: false, ariaLabel: name })
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(words.textContent)
      button.textContent = "check"
    } catch { // another machine's page without TLS has no clipboard: the reader copies what is chosen
      getSelection().selectAllChildren(words)
    }
  })
  frame.replaceChildren(words, button)
  return frame
}
