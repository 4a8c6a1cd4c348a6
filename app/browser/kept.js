// Arrays of a figure that are as before stay the very arrays they were: Plotly then draws no more than what has changed.
const kinds = {
  f8: Float64Array, f4: Float32Array, i4: Int32Array, u4: Uint32Array, i2: Int16Array, u2: Uint16Array, i1: Int8Array, u1: Uint8Array,
}
const arrays = new WeakMap() // by what was told of them: Plotly would make another one each time
const isObject = value => value !== null && typeof value === "object"
const isRecord = value => isObject(value) && !Array.isArray(value)

function array(told) {
  if (!arrays.has(told)) {
    const { buffer } = Uint8Array.from(atob(told.bdata), character => character.charCodeAt(0))
    arrays.set(told, new kinds[told.dtype](buffer))
  }
  return arrays.get(told)
}

// What was told, with each part that is as before replaced by the one of before.
function kept(before, now) {
  if (!isObject(before) || !isObject(now)) return now
  const names = Object.keys(now)
  for (const name of names) now[name] = kept(before[name], now[name])
  const isSame = names.length === Object.keys(before).length && names.every(name => now[name] === before[name])
  return isSame && Array.isArray(before) === Array.isArray(now) ? before : now
}

// What was told, as Plotly may have it: it writes zooms and choices into records and ranges, and never into other arrays.
function lent(part, name) {
  if (!isObject(part) || name === "template") return part
  if (Array.isArray(part)) return part.some(isRecord) ? part.map(each => lent(each)) : name === "range" ? [...part] : part
  if (part.bdata) return part.shape || !kinds[part.dtype] ? part : array(part) // one of several rows is left to Plotly
  return Object.fromEntries(Object.entries(part).map(([each, value]) => [each, lent(value, each)]))
}
