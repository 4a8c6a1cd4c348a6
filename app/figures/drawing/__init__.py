"""Parts of figures: canvas, axes, bands, marks, hover texts, thinning."""
