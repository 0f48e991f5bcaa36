"""How far a posterior is to be believed, told by votes that it has not seen."""
