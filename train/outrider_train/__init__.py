"""Trains draft heads (EAGLE-3, Medusa) from what `outrider features` wrote."""
