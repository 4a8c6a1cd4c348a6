// The link of a page, in the drawer for sharing: the address as it is when the drawer opens. The server would tell the address of the
// last drawing of the whole page; a choice may have drawn only a part of it since. made: choices of the header, such as the run, which
// the address may lack while the page is drawn.
export default function ({ parentElement, data }) {
  const url = new URL(location.href)
  for (const [key, value] of Object.entries(data.made)) if (!url.searchParams.has(key)) url.searchParams.set(key, value)
  copied(parentElement, [url.href], "copy the link")
}
