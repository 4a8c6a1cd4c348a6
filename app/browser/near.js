// Charts near the screen are drawn; any other waits until it comes near, or the page is printed. So a choice of the reader costs
// what is looked at, however long the page is.
const reach = "150px" // a chart this far from the screen is drawn before it is seen
// the second margin is for pages that scroll within a part of the window, as Streamlit's do
const nearby = { rootMargin: reach, scrollMargin: reach }
const unseen = new CSSStyleSheet()
unseen.replaceSync(".rs-chart[data-far] { overflow: hidden }") // as wide as it was: a window that has become narrower would scroll
document.adoptedStyleSheets.push(unseen)
