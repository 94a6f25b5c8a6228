"""Settings of models on which tests of heads run: each form of attention and each kind of norm, position and part."""

FORMS = [
    "",
    "model.bias=false",
    "model.norm_position=post",
    "model.attention=grouped_query model.num_heads=4 model.num_key_value_heads=2",
    "model.attention=latent model.positions=rope",
    "model.positions=rope model.norm=rmsnorm model.activation=relu2 model.bias=false",
    "model.tie_embeddings=true model.ngram_embedding=3",
    "model.norm=rmsnorm model.norm_position=post model.qkv_bias=true model.positions=sinusoidal",
]
