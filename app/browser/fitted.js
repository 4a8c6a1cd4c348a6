// A chart's layout for a place that may be narrower than its title: Plotly breaks no line itself. The chart grows by the new lines.
const pen = document.createElement("canvas").getContext("2d")
const edge = 34 // pixels beside a title, at both of its ends together
const mark = 18 // of the ?, which stands left of the right margin, beside the notes
const numbers = 48 // by which the right margin grows for a column of numbers

function measured(font) {
  pen.font = `${font.size}px ${font.family}`
  return words => pen.measureText(words.replaceAll(/<[^>]*>/g, "")).width
}

function broken(text, font, width) {
  const long = measured(font)
  return text.split("<br>").flatMap(line => {
    const lines = [""]
    for (const word of line.match(/(?:<[^>]*>|[^\s<])+/g) ?? []) {
      const more = lines.at(-1) ? `${lines.at(-1)} ${word}` : word
      if (lines.at(-1) && long(more) > width) lines.push(word)
      else lines[lines.length - 1] = more
    }
    return lines
  })
}

// Words over a chart without their last parts, " · name", that do not fit.
function shortened(text, font, width) {
  const long = measured(font)
  while (long(text) > width && / · [^·<]*<[/]span>$/.test(text)) text = text.replace(/ · [^·<]*<[/]span>$/, "</span>")
  return text
}

function fitted(layout, width) {
  const { template, title, margin } = layout
  if (!title?.text || !width) return layout
  const { font: { family }, title: usual } = template.layout
  const isAsked = layout.annotations?.some(each => each.captureevents && each.text === "?")
  const beside = isAsked ? mark + Math.max(0, (margin?.r ?? 0) - 16) + (layout.yaxis2?.automargin ? numbers : 0) : 0
  const [head, notes] = [[title, usual], [title.subtitle ?? {}, usual.subtitle]]
    .map(([{ text = "" }, { font }], isNotes) => ({ lines: broken(text, { family, ...font }, width - edge - (isNotes && beside)), font, before: text.split("<br>").length }))
  const room = width - (margin?.l ?? 0) - (margin?.r ?? 0)
  const words = layout.annotations?.map(each => (each.name === "shortened" ? { ...each, text: shortened(each.text, { family, ...each.font }, room) } : each))
  const taller = [head, notes].reduce((sum, { lines, font, before }) => sum + (lines.length - before) * Math.ceil(1.3 * font.size), 0)
  if (!taller) return { ...layout, annotations: words }
  return {
    ...layout,
    height: layout.height + taller,
    margin: { ...margin, t: margin.t + taller },
    title: { ...title, text: head.lines.join("<br>"), subtitle: { ...title.subtitle, text: notes.lines.join("<br>") } },
    annotations: words?.map(each => (each.captureevents && each.yref === "paper" && each.y === 1 ? { ...each, yshift: each.yshift + taller } : each)),
  }
}
