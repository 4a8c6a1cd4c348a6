// The link of a page, in the drawer for sharing: the address as it is when the drawer opens, with a button that copies it. The
// server would tell the address of the last drawing of the whole page; a choice may have drawn only a part of it since.
const look = new CSSStyleSheet()
look.replaceSync(`.rs-link { display: flex; align-items: start; gap: .5rem }
  .rs-link pre { flex: 1; margin: 0; padding: .75rem; border-radius: .5rem; white-space: pre-wrap; overflow-wrap: anywhere;
    font: .875rem/1.5 var(--st-code-font, monospace); background: var(--st-secondary-background-color) }
  .rs-link button { all: unset; padding: .5rem; cursor: pointer; font: 1.25rem/1 "Material Symbols Rounded" }
  .rs-link button:is(:hover, :focus-visible) { color: var(--st-primary-color) }
  .rs-link button:focus-visible { outline: 2px solid; border-radius: 5px }`)
document.adoptedStyleSheets.push(look)

export default function ({ parentElement }) {
  const place = parentElement.querySelector(".rs-link") ?? parentElement.appendChild(document.createElement("div"))
  place.className = "rs-link"
  const words = Object.assign(document.createElement("pre"), { textContent: location.href, tabIndex: 0 })
  const copy = Object.assign(document.createElement("button"), { type: "button", textContent: "content_copy", translate: false, ariaLabel: "copy the link" })
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href)
      copy.textContent = "check"
    } catch { // another machine's page without TLS has no clipboard: the reader copies what is chosen
      getSelection().selectAllChildren(words)
    }
  })
  place.replaceChildren(words, copy)
}
