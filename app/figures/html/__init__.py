"""Figures of HTML: cards, tables, legends, tinted text."""
