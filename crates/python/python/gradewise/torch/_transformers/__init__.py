"""What the transformers of geometric algebra share: their algebras, equivariant maps, norms, products and attention.

The published packages take multivectors ``[..., items, channels, 16]`` beside scalars ``[..., items, channels]``. Within a model they are
:class:`~gradewise.torch._transformers.features.Features`, planes ``[16, channels, rows]``: an equivariant map is then a few matrix products
of contiguous planes, and nothing is transposed between layers.
"""
