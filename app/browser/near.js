// Charts near the screen are drawn; any other waits until it comes near, or the page is printed. So a choice of the reader costs
// what is looked at, however long the page is.
const reach = "150px" // a chart this far from the screen is drawn before it is seen
const sought = new Map() // charts by the element that is drawn into
const sight = new IntersectionObserver(
  seen => seen.forEach(({ target, isIntersecting }) => sought.get(target)?.comes(isIntersecting)),
  { rootMargin: reach, scrollMargin: reach }, // the second for pages that scroll within a part of the window, as Streamlit's do
)

const unseen = new CSSStyleSheet()
unseen.replaceSync(".rs-chart[data-far] { overflow: hidden }") // as wide as it was: a window that has become narrower would scroll
document.adoptedStyleSheets.push(unseen)

function seek(chart) {
  sought.set(chart.div, chart)
  sight.observe(chart.div)
}

function leave({ div }) {
  sight.unobserve(div)
  sought.delete(div)
}

addEventListener("beforeprint", () => sought.forEach(chart => chart.prints()))
