// Charts over steps share one cursor and one zoom: the step under the pointer is marked on all of them, and a range of steps that
// is drawn on one is shown by all, also when a page is drawn anew for the same choices. Any other chart has a zoom of its own. The
// address tells them as `first:last` of the axis of steps and `key~axis:first:last` of each other chart, with commas between.
const asked = (new URL(location.href).searchParams.get("zoom") ?? "").split(",").map(part => part.split("~"))
const isAxis = /^[xy]axis\d*$/
const isRange = range => range.length === 2 && range.every(Number.isFinite)
const steps = asked.filter(part => part.length === 1).map(([text]) => text.split(":").map(Number)).find(isRange)
const linked = { state: null, range: steps ?? null, isShown: Boolean(steps), busy: false }
const zoomed = new Map() // key of a chart that is not over steps -> its state, and the range of each axis
for (const [key, ...axes] of asked.filter(part => part.length > 1)) {
  const named = axes.map(text => text.split(":")).map(([axis, ...range]) => [axis, range.map(Number)])
  const ranges = named.filter(([axis, range]) => isAxis.test(axis) && isRange(range))
  if (ranges.length) zoomed.set(key, { state: null, ranges: Object.fromEntries(ranges) })
}
// The ranges that a figure comes with, as text: Plotly writes zooms into its layout.
const axesOf = layout => Object.entries(layout).filter(([name]) => isAxis.test(name))
const rangesOf = layout => Object.fromEntries(axesOf(layout).map(([name, { range }]) => [name, String(range)]))
const keyOf = ({ div }) => /st-key-(\S+)/.exec(div.closest("[class*=st-key-]")?.className)?.[1]
const kind = ({ figure }) => figure?.layout.xaxis?.type ?? "linear"
const isOverSteps = ({ figure }) => figure?.layout.xaxis?.tickprefix === "step "

const looks = new CSSStyleSheet()
looks.replaceSync(`.rs-chart { position: relative }
  .rs-chart[data-leads] .nsewdrag { cursor: pointer !important }
  .rs-cursor { position: absolute; width: 1px; pointer-events: none; opacity: .5; background: currentColor }`)
document.adoptedStyleSheets.push(looks)

// listener.js completes every address with what stands here.
function tellZoom() {
  const short = range => range.map(end => Number(Number(end).toPrecision(6))).join(":")
  const own = ([key, { ranges }]) => [key, ...Object.entries(ranges).map(([axis, range]) => `${axis}:${short(range)}`)].join("~")
  const text = [...(linked.isShown ? [short(linked.range)] : []), ...[...zoomed].map(own)].join(",")
  if (document.documentElement.dataset.zoom === text) return
  document.documentElement.dataset.zoom = text
  history.replaceState(history.state, "", location.href)
}

function shared(layout, chart) {
  if (!isOverSteps(chart)) return withOwnZoom(layout, chart)
  if (linked.range && linked.state === null) Object.assign(linked, { state: chart.state, kind: kind(chart) }) // of the address
  linked.isShown = Boolean(linked.range && linked.state === chart.state && linked.kind === kind(chart))
  tellZoom()
  if (!linked.isShown) return layout
  return { ...layout, xaxis: { ...layout.xaxis, range: [...linked.range], autorange: false } }
}

function withOwnZoom(layout, chart) {
  const own = zoomed.get(chart.key)
  if (!own) return layout
  own.state ??= chart.state // of the address
  if (own.state !== chart.state) {
    forgetZoom(chart)
    return layout
  }
  const axes = Object.entries(own.ranges).filter(([axis]) => layout[axis])
  return { ...layout, ...Object.fromEntries(axes.map(([axis, range]) => [axis, { ...layout[axis], range: [...range], autorange: false }])) }
}

// A chart that leaves the page, or shows another choice, takes its zoom out of the address; that of the steps goes with the last.
function forgetZoom(chart) {
  zoomed.delete(chart.key)
  linked.isShown &&= [...charts.values()].some(isOverSteps)
  tellZoom()
}

// changes: as Plotly tells them, `xaxis.range[0]`, or `xaxis.autorange` after a double click.
function keepZoom(chart, changes) {
  const ranges = { ...zoomed.get(chart.key)?.ranges }
  for (const axis of new Set(Object.keys(changes).map(name => name.split(".")[0]).filter(name => isAxis.test(name)))) {
    const range = chart.div._fullLayout[axis].range.map(Number)
    if (changes[`${axis}.autorange`] || String(range) === chart.ranges[axis] || !isRange(range)) delete ranges[axis]
    else ranges[axis] = range
  }
  if (Object.keys(ranges).length) zoomed.set(chart.key, { state: chart.state, ranges })
  else zoomed.delete(chart.key)
  tellZoom()
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
  linked.isShown = !whole
  tellZoom()
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
  div.on("plotly_relayout", changes => {
    if (isOverSteps(chart)) zoomOthers(chart, changes, charts)
    else keepZoom(chart, changes)
  })
}
