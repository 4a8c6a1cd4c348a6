"""What of ours runs in the browser, and the components that put it there."""
