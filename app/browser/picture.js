// The camera button: a chart as a file that has the page's font in it. A picture has no fonts of the page, so its words would be
// as wide as those of another font, and run over each other.
const faces = new Map() // CSS rule -> the same rule with the font itself in place of its address

async function embedded(rule) {
  const address = /url\("?([^")]+)"?\)/.exec(rule.style.src)?.[1]
  const font = await (await fetch(new URL(address, rule.parentStyleSheet.href ?? document.baseURI))).blob()
  const data = await new Promise((resolve, reject) => {
    const reader = Object.assign(new FileReader(), { onload: () => resolve(reader.result), onerror: reject })
    reader.readAsDataURL(font)
  })
  return rule.cssText.replace(/src:[^;}]+/, `src: url("${data}")`)
}

function fontRules(family) {
  const [first] = family.split(",").map(name => name.replaceAll(/["']/g, "").trim())
  const rules = [...document.styleSheets].filter(sheet => !sheet.href || sheet.href.startsWith(location.origin)).flatMap(sheet => [...sheet.cssRules])
  return rules.filter(
    rule => rule instanceof CSSFontFaceRule && rule.style.fontFamily.replaceAll(/["']/g, "") === first && rule.style.fontStyle !== "italic",
  )
}

async function styled(div) {
  const rules = fontRules(div._fullLayout.font.family)
  for (const rule of rules) if (!faces.has(rule.cssText)) faces.set(rule.cssText, await embedded(rule))
  return `<style>${rules.map(rule => faces.get(rule.cssText)).join("")}</style>`
}

async function rasterized(svg, { width, height }, scale) {
  const image = Object.assign(new Image(), { src: URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" })) })
  await image.decode()
  const canvas = Object.assign(document.createElement("canvas"), { width: width * scale, height: height * scale })
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height)
  URL.revokeObjectURL(image.src)
  return new Promise(resolve => canvas.toBlob(resolve, "image/png"))
}

async function picture(div, { format, filename, scale }) {
  const made = await window.Plotly.toImage(div, { format: "svg", imageDataOnly: true })
  const style = await styled(div)
  const whole = made.replace(/<svg[^>]*>/, start => start + style)
  const file = format === "png" ? await rasterized(whole, div._fullLayout, scale) : new Blob([whole], { type: "image/svg+xml" })
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: `${filename}.${format}` })
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 60000)
}

const camera = {
  name: "picture",
  title: "Download picture",
  icon: { width: 24, height: 24, path: "M9 3 7.2 5H4a2 2 0 0 0-2 2v12a2 2 0 0 0 2 2h16a2 2 0 0 0 2-2V7a2 2 0 0 0-2-2h-3.2L15 3H9zm3 15a5 5 0 1 1 0-10 5 5 0 0 1 0 10zm0-2a3 3 0 1 0 0-6 3 3 0 0 0 0 6z" },
  click: div => picture(div, div._context.toImageButtonOptions),
}
