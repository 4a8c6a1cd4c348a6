// Plotly, asked for once by whoever is first. A page names it in a header, so that it is mostly there already.
function plotly(source) {
  if (window.Plotly) return Promise.resolve(window.Plotly)
  const known = document.querySelector(`script[src="${source}"]`)
  const script = known ?? Object.assign(document.createElement("script"), { src: source })
  const come = new Promise((resolve, reject) => {
    script.addEventListener("load", () => resolve(window.Plotly))
    script.addEventListener("error", () => {
      script.remove() // the next chart asks again
      reject(new Error(`${source} did not come. Is the dashboard still running?`))
    })
  })
  if (!known) document.head.append(script)
  return come
}
