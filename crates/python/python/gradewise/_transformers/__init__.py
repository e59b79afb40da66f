"""What the transformers of geometric algebra are, for every library of arrays: their algebras, options and initial values."""
