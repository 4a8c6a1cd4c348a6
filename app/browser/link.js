// The link of a page, in the drawer for sharing: the address as it is when the drawer opens. The server would tell the address of the
// last drawing of the whole page; a choice may have drawn only a part of it since.
export default function ({ parentElement }) {
  copied(parentElement, [location.href], "copy the link")
}
