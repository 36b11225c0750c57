"""The masked protocol: pairwise and self masks, shares for those who vanish, signatures on who survived."""
