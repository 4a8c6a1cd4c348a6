// Arrow keys lead from bar to bar and from point to point of a chart that opens what is clicked; Enter opens it. The words of the
// point under the focus are shown as under the pointer.
function stops({ div }) {
  return div._fullData.flatMap((trace, curveNumber) =>
    ["bar", "scatter"].includes(trace.type) && trace.visible === true && trace.hoverinfo !== "skip"
      ? Array.from(trace.x, (x, pointNumber) => ({ x, trace, curveNumber, pointNumber })).filter(({ x }) => x != null)
      : [])
}

function keyed(chart) {
  let at = -1
  chart.div.addEventListener("keydown", event => {
    if (event.target !== chart.div || !chart.listens || !chart.div.hasAttribute("data-leads")) return
    const every = stops(chart)
    const last = every.length - 1
    const places = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }
    const stop = every[places[event.key] ?? at]
    if (!stop || !(event.key in places || event.key === "Enter")) return
    event.preventDefault()
    event.stopPropagation()
    const { x, trace, curveNumber, pointNumber } = stop
    if (event.key === "Enter") return chart.clicked([{ x, customdata: trace.customdata?.[pointNumber], data: trace }])
    at = places[event.key]
    window.Plotly.Fx.hover(chart.div, [{ curveNumber, pointNumber }], `${trace.xaxis ?? "x"}${trace.yaxis ?? "y"}`)
  })
  chart.div.addEventListener("blur", () => chart.listens && window.Plotly.Fx.unhover(chart.div))
}
