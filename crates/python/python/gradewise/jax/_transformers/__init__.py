"""What the transformers of geometric algebra share in JAX: layers as functions of their parameters, features, linear maps, attention."""
