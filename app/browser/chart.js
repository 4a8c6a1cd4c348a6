// The charts of a page, each drawn in place: what was zoomed or hidden stays as it is while a run grows. Those on the screen
// are drawn before those near it, and the browser paints and listens between two. It reads what chart.py tells, no more.
const charts = new Map() // by the place that Streamlit made
const waiting = new Set()
const decoder = new TextDecoder()
const widened = new Set() // not told to wait yet: their width may change again
let drawing = false
let patience = 0

const later = () => new Promise(resolve => setTimeout(resolve))
const turn = () => window.scheduler?.yield?.() ?? later()

const plain = told => (ArrayBuffer.isView(told) ? [...told] : told) // a heat map tells numbers that JSON would make an object of

function farOff({ div }) {
  const { top, bottom } = div.getBoundingClientRect()
  return bottom > 0 && top < innerHeight ? top - 1e6 : Math.abs(top)
}

async function drawAll() {
  if (drawing) return
  drawing = true
  await later() // all that came with one answer stand in line by then
  while (waiting.size) {
    const chart = [...waiting].reduce((first, other) => (farOff(other) < farOff(first) ? other : first))
    waiting.delete(chart)
    chart.isDue = false // from here on a chart that is told anew is due again, whatever comes of this time
    await ended(chart, plotly(chart.library).then(() => draw(chart)))
    await turn()
  }
  drawing = false
}

async function ended(chart, work) {
  try {
    await work
  } catch (error) {
    giveUp(chart, error)
  }
  if (!chart.isDue) delete chart.div.dataset.waits
}

function giveUp(chart, error) {
  console.error(error)
  window.Plotly?.purge(chart.div)
  chart.div.textContent = `This chart cannot be drawn: ${error.message}`
  chart.listens = false
  chart.hasFailed = true // the next time the page is drawn it is tried again
}

function read(chart) {
  const { figure, config } = JSON.parse(chart.told)
  chart.pattern = kept(chart.pattern, figure)
  const { data, layout } = lent(chart.pattern)
  Object.assign(chart, { ranges: rangesOf(layout), figure: { data, layout: freed(layout) }, config: withOwnButtons(config), isRead: true })
}

async function draw(chart) {
  const { div } = chart
  chart.isDue = chart.hasFailed = false
  chart.width = div.clientWidth
  if (!chart.width) return // out of sight: once it has a width, it is told so
  if (!chart.isRead) read(chart)
  const { figure, config } = chart
  const height = document.fullscreenElement === div ? innerHeight : chart.height
  const layout = shared({ ...figure.layout, height, width: chart.width, uirevision: chart.revision }, chart)
  if (!chart.listens) div.replaceChildren() // words that stand there instead
  await window.Plotly.react(div, figure.data, layout, config)
  if (!chart.listens) {
    chart.listens = true
    div.on("plotly_afterplot", () => reachable(chart))
    reachable(chart)
    div.on("plotly_click", ({ points }) => chart.clicked(points))
    link(chart, charts)
    keyed(chart)
  }
}

// The chart is to be drawn: now, or once it comes near.
function wait(chart) {
  widened.delete(chart)
  chart.isDue = true
  chart.div.dataset.waits = ""
  if (chart.isNear !== undefined) comes(chart, chart.isNear) // a new one has not been looked for yet
}

function comes(chart, isNear) {
  chart.isNear = isNear
  chart.div.toggleAttribute("data-far", !isNear)
  if (!chart.isDue) return
  if (isNear) waiting.add(chart)
  else waiting.delete(chart)
  chart.div.toggleAttribute("data-waits", isNear)
  if (isNear) drawAll()
}

addEventListener("beforeprint", () => {
  for (const chart of charts.values()) if (chart.isDue && window.Plotly) ended(chart, draw(chart))
})

function drawWidened() {
  for (const chart of widened) wait(chart) // in one line, for the nearest to be drawn first
}

const enlarge = {
  name: "full screen",
  title: "Full screen",
  icon: { width: 24, height: 24, path: "M4 4h6v2H6v4H4V4zm10 0h6v6h-2V6h-4V4zM4 14h2v4h4v2H4v-6zm14 0h2v6h-6v-2h4v-4z" },
  click: div => (document.fullscreenElement ? document.exitFullscreen() : div.requestFullscreen()),
}

function withOwnButtons(config) {
  const [first, ...others] = config.modeBarButtons ?? [[]]
  return { ...config, modeBarButtons: [[...first.map(name => (name === "toImage" ? camera : name)), enlarge], ...others] }
}

function made(place) {
  const div = document.createElement("div")
  div.className = "rs-chart"
  div.setAttribute("role", "figure")
  place.append(div)
  // Plotly keeps a zoom where the revision is the same, and not nought
  const chart = { div, told: "", state: null, revision: 1, width: 0, listens: false, calls: 0 }
  chart.sight = new IntersectionObserver(seen => comes(chart, seen.at(-1).isIntersecting), nearby)
  chart.observer = new ResizeObserver(() => {
    if (div.clientWidth === chart.width || waiting.has(chart)) return
    div.dataset.waits = ""
    widened.add(chart)
    clearTimeout(patience)
    patience = setTimeout(drawWidened, 100) // a window that is dragged, or a page that is laid out anew, has many widths
  })
  charts.set(place, chart)
  return chart
}

function tell(chart, { state, library, height, paper }, told) {
  if (chart.told && state !== chart.state) chart.revision += 1 // another choice, not more of the same: no zoom outlives it
  Object.assign(chart, { told, library, height, isRead: false })
  chart.div.style.height = `${height}px`
  chart.div.style.background = paper
  wait(chart)
  chart.observer.observe(chart.div)
  chart.sight.observe(chart.div)
}

export default function ({ parentElement, data, setTriggerValue }) {
  const chart = charts.get(parentElement) ?? made(parentElement)
  const [first, told] = decoder.decode(data).split("\n")
  const head = JSON.parse(first)
  chart.key = keyOf(chart)
  chart.clicked = points => {
    const told = points.map(({ x, customdata, data }) => ({ x, customdata: plain(customdata), trace: data.name }))
    if (head.clickable) setTriggerValue("points", told)
  }
  offer(chart, head)
  chart.div.setAttribute("aria-label", head.alt)
  chart.div.toggleAttribute("data-leads", head.clickable)
  if (head.clickable) chart.div.tabIndex = 0
  if (head.clickable) chart.div.setAttribute("aria-keyshortcuts", "ArrowLeft ArrowRight Home End Enter")
  if (told !== chart.told || chart.hasFailed) tell(chart, head, told)
  chart.state = head.state
  const call = ++chart.calls
  return () => {
    if (call !== chart.calls) return // Streamlit clears up after a call that another has overtaken
    chart.observer.disconnect()
    chart.sight.disconnect()
    widened.delete(chart)
    waiting.delete(chart)
    charts.delete(parentElement)
    forgetZoom(chart)
    window.Plotly?.purge(chart.div)
    chart.button?.remove()
    chart.div.remove()
  }
}
