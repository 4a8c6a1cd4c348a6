// Charts over steps share one cursor and one zoom: the step under the pointer is marked on all of them, and a range of steps that
// is drawn on one is shown by all, also when a page is drawn anew for the same choices. The address tells it, as the first and the last
// position on the axis.
const asked = new URL(location.href).searchParams.get("zoom")?.split(":").map(Number)
const linked = { state: null, range: asked?.length === 2 && asked.every(Number.isFinite) ? asked : null, busy: false }
const kind = ({ figure }) => figure?.layout.xaxis?.type ?? "linear"
const isOverSteps = ({ figure }) => figure?.layout.xaxis?.tickprefix === "step "

const looks = new CSSStyleSheet()
looks.replaceSync(`.rs-chart { position: relative }
  .rs-chart[data-leads] .nsewdrag { cursor: pointer !important }
  .rs-cursor { position: absolute; width: 1px; pointer-events: none; opacity: .5; background: currentColor }`)
document.adoptedStyleSheets.push(looks)

// listener.js completes every address with what stands here.
function tellZoom(range) {
  const text = range ? range.map(end => Number(Number(end).toPrecision(6))).join(":") : ""
  if (document.documentElement.dataset.zoom === text) return
  document.documentElement.dataset.zoom = text
  history.replaceState(history.state, "", location.href)
}

function shared(layout, chart) {
  if (!isOverSteps(chart)) return layout
  if (linked.range && linked.state === null) Object.assign(linked, { state: chart.state, kind: kind(chart) }) // of the address
  const isShown = linked.range && linked.state === chart.state && linked.kind === kind(chart)
  tellZoom(isShown ? linked.range : null)
  if (!isShown) return layout
  return { ...layout, xaxis: { ...layout.xaxis, range: [...linked.range], autorange: false } }
}

function others(chart, charts) {
  return [...charts.values()].filter(other => other !== chart && other.listens && isOverSteps(other))
}

function mark({ div }, step) {
  const { xaxis, _size: size, font } = div._fullLayout
  const left = xaxis._offset + xaxis.d2p(step)
  const inside = left >= size.l && left <= size.l + size.w
  const line = div.querySelector(":scope > .rs-cursor") ?? div.appendChild(document.createElement("div"))
  line.className = "rs-cursor"
  Object.assign(line.style, { display: inside ? "" : "none", left: `${left}px`, top: `${size.t}px`, height: `${size.h}px`, color: font.color })
}

function unmark({ div }) {
  div.querySelector(":scope > .rs-cursor")?.remove()
}

async function zoomOthers(chart, changes, charts) {
  const range = changes["xaxis.range"] ?? [changes["xaxis.range[0]"], changes["xaxis.range[1]"]]
  const whole = changes["xaxis.autorange"] === true
  if (linked.busy || !(whole || range[0] !== undefined)) return
  linked.state = chart.state
  linked.range = whole ? null : range
  linked.kind = kind(chart)
  tellZoom(linked.range)
  linked.busy = true
  try {
    const update = whole ? { "xaxis.autorange": true } : { "xaxis.range": range, "xaxis.autorange": false }
    const alike = others(chart, charts).filter(other => kind(other) === kind(chart)) // a range of a log axis is of logarithms
    for (const other of alike) await window.Plotly.relayout(other.div, update)
  } finally {
    linked.busy = false
  }
}

function link(chart, charts) {
  const { div } = chart
  div.on("plotly_hover", ({ points }) => {
    if (isOverSteps(chart)) for (const other of others(chart, charts)) mark(other, points[0].x)
  })
  div.on("plotly_unhover", () => others(chart, charts).forEach(unmark))
  div.on("plotly_relayout", changes => isOverSteps(chart) && zoomOthers(chart, changes, charts))
}
