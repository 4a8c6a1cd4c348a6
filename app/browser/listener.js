// Tells whether the window is narrow, presses the buttons of `?`, `[` and `]`, and has Plotly ready where a page draws no chart.
const narrow = matchMedia("(max-width: 520px)")
const presses = { "?": "keys", "[": "step_before", "]": "step_after" }
let known = false
let tell = () => {}

function ask(event) {
  const typing = event.target.closest?.("input, textarea, [contenteditable=true]")
  const key = presses[event.key]
  if (key && !typing && !event.ctrlKey && !event.metaKey && !document.querySelector("[role=dialog]"))
    document.querySelector(`.st-key-${key} button`)?.click()
}

function tellWidth() {
  if (narrow.matches !== known) tell("narrow", (known = narrow.matches))
}

export default function ({ data, setStateValue }) {
  tell = setStateValue
  known = data.narrow
  tellWidth()
  narrow.onchange = tellWidth
  document.addEventListener("keydown", ask)
  const idle = window.requestIdleCallback ?? setTimeout
  idle(() => plotly(data.library).catch(() => {}))
  return () => document.removeEventListener("keydown", ask)
}
