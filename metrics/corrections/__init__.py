"""Corrections of the off-policy gap: truncation, masking, rejection, their effects and the advice."""
