// Fixed ranges of axes as automatic ones with the same ends: a double click restores them after a zoom.
function freed(layout) {
  const axes = Object.entries(layout).filter(([name, { range, type } = {}]) => /^[xy]axis/.test(name) && typeof range?.[0] === "number" && type !== "log")
  const made = axes.map(([name, { range: [first, last], ...axis }]) => {
    const autorangeoptions = { minallowed: Math.min(first, last), maxallowed: Math.max(first, last) }
    return [name, { ...axis, autorange: first <= last ? true : "reversed", autorangeoptions }]
  })
  return { ...layout, ...Object.fromEntries(made) }
}
