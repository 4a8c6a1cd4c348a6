// Tells whether the window is narrow, and the token of a text that is clicked, presses the buttons of `?`, `[` and `]`, opens the
// page of `g` and a letter, passes on which chart's numbers are asked for, puts choices that were made for the reader into the
// address, and has Plotly ready where a page draws no chart.
const narrow = matchMedia("(max-width: 520px)")
const PAGE_LINKS = "[data-testid=stTopNavLink], [data-testid=stSidebarNavLink]"
const TABS = "[data-testid=stPageLink-NavLink]"
const presses = { "?": "keys", "[": "step_before", "]": "step_after" }
let known = false
let calls = 0
let tell = () => {}
let tellOnce = () => {}
let pages = {}
let going = -Infinity // when `g` was pressed

function ask(event) {
  const typing = event.target.closest?.("input, textarea, [contenteditable=true]")
  const key = presses[event.key]
  if (key && !typing && !event.ctrlKey && !event.metaKey && !document.querySelector("[role=dialog]"))
    document.querySelector(`.st-key-${key} button`)?.click()
}

// The link of a tab to the first page has no address.
const pathOf = link => new URL(link.getAttribute("href") || "/", location.href).pathname.slice(1)

// The navigation lists the first page of each topic. It shows where the reader is on the other pages of the topic, too.
// Streamlit draws the tabs when it likes, perhaps after this script has run.
let here = { path: "", topic: "", titles: {} }

function mark() {
  for (const link of document.querySelectorAll(`${PAGE_LINKS}, ${TABS}`)) {
    const at = pathOf(link)
    link.title = here.titles?.[at] ?? ""
    const value = at === here.path ? "page" : at === here.topic && !link.matches(TABS) ? "true" : null
    if (value) link.setAttribute("aria-current", value)
    else link.removeAttribute("aria-current") // Streamlit sets it too, and knows of an answer before this script does
  }
}

const UNMARKED = `:is(${PAGE_LINKS}, ${TABS}):not([title])`
new MutationObserver(() => document.querySelector(UNMARKED) && mark()).observe(document.body, { childList: true, subtree: true })

// Before Streamlit sees the key, for the letter after `g` may be a shortcut of its own.
function go(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return
  if (event.target.closest?.("input, textarea, [contenteditable=true], [role=dialog], [role=grid]")) return
  const waited = event.timeStamp - going
  going = event.key === "g" ? event.timeStamp : -Infinity
  const path = waited < 1500 ? pages[event.key] : undefined
  if (path === undefined) return
  event.stopImmediatePropagation()
  const link = Array.from(document.querySelectorAll(`${PAGE_LINKS}, ${TABS}`)).find(link => pathOf(link) === path)
  if (link) link.click()
  else tellOnce("page", path)
}

addEventListener("keydown", go, true)

// A reader who selects text to copy it chooses no token. Of samples in lines the line is chosen.
function pick(event) {
  const line = event.target.closest?.("[data-line]")
  if (line && !getSelection().toString()) return tellOnce("token", Number(line.dataset.line))
  const token = event.target.closest?.(".rs-text i")
  const place = /^position (\d+)/.exec(token?.dataset.h ?? "")
  if (place && !getSelection().toString()) tellOnce("token", Number(place[1]))
}

document.addEventListener("click", pick)
document.addEventListener("rs-numbers", ({ detail }) => tellOnce("numbers", detail))

function tellWidth() {
  if (narrow.matches !== known) tell("narrow", (known = narrow.matches))
}

// Streamlit frames the whole page once a key is pressed after a click on it. The frame is left to those who come there by Tab.
const frame = new CSSStyleSheet()
frame.replaceSync(`[data-testid=stMain][data-clicked]::before { content: none !important }
  .rs-text i { cursor: pointer }
  :is(${PAGE_LINKS})[aria-current=true] { background: rgba(165, 165, 187, .15) }
  :is(${PAGE_LINKS})[aria-current=true] * { font-weight: 600 }
  [data-testid=stButtonGroup] button { min-height: 2.5rem }
  [data-testid=stButtonGroup] [data-testid=stWidgetLabel] { height: 21px }
  .st-key-newest button, .st-key-statements button, .st-key-other_tabs button { min-height: 1.75rem; padding-block: 0 }
  .st-key-statements, .st-key-other_tabs { row-gap: 0 }
  [data-testid=stCaptionContainer] { color: inherit; opacity: .74 }
  kbd[aria-label^=Shortcut] { color: inherit; opacity: 1 }`)
// Streamlit's own greys have a contrast below 4.5. Rows of choices are as tall as fields, so
// that the labels of both stand at one height. Lines of links stand as close as lines of text.
document.adoptedStyleSheets.push(frame)

function clicked({ type, key }) {
  if (type === "pointerdown" || key === "Tab")
    document.querySelector("[data-testid=stMain]")?.toggleAttribute("data-clicked", type === "pointerdown")
}

for (const type of ["pointerdown", "keydown"]) document.addEventListener(type, clicked, true)

// The choices that the server made for the reader on the page of this path, and those of them that this script put into the address.
// Streamlit leaves them out each time it writes the address, also where nothing that it draws here has changed.
let made = { address: {}, path: null }
let added = {}

function whole(address) {
  const url = new URL(address ?? location.href, location.href)
  const lacking = Object.entries(made.address).filter(([key]) => !url.searchParams.has(key))
  const isHere = made.path === null || url.pathname === `/${made.path}` // on another path the reader has gone on
  added = isHere ? Object.fromEntries(lacking) : {}
  for (const [key, value] of Object.entries(added)) url.searchParams.set(key, value)
  const { zoom } = document.documentElement.dataset // of linked.js; none before the first chart
  if (!isHere || zoom === "") url.searchParams.delete("zoom")
  else if (zoom) url.searchParams.set("zoom", zoom)
  return url.href
}

const push = history.pushState.bind(history), replace = history.replaceState.bind(history)
history.replaceState = (state, title, url) => replace(state, title, whole(url))
history.pushState = (state, title, url) => { // a choice replaces the address, so that Back leads to the page before
  const same = new URL(url, location.href).pathname === location.pathname
  return (same ? replace : push)(state, title, whole(url))
}

function complete({ address, path }) {
  const url = new URL(location.href)
  for (const [key, value] of Object.entries(added)) if (url.searchParams.get(key) === value) url.searchParams.delete(key)
  made = { address, path }
  if (whole(url) !== location.href) history.replaceState(history.state, "", url)
}

// A link to another page that is opened in a tab of its own leads to the same run.
function nameRun({ target }) {
  const link = target.closest?.(`${PAGE_LINKS}, ${TABS}`)
  if (link && made.address.run) {
    if (!link.getAttribute("href")) link.href = "/"
    link.search = `?${new URLSearchParams({ run: made.address.run })}`
  }
}

for (const type of ["pointerover", "focusin"]) document.addEventListener(type, nameRun, true)

export default function ({ data, setStateValue, setTriggerValue }) {
  complete(data)
  here = data
  mark()
  tell = setStateValue
  tellOnce = setTriggerValue
  pages = data.pages
  known = data.narrow
  tellWidth()
  narrow.onchange = tellWidth
  document.addEventListener("keydown", ask)
  const idle = window.requestIdleCallback ?? setTimeout
  idle(() => plotly(data.library).catch(() => {}))
  const call = ++calls
  return () => { // Streamlit clears up after a call that another has overtaken, too
    if (call === calls) document.removeEventListener("keydown", ask)
  }
}
