"""Less work for each token read: hidden states pruned inside the forward pass."""
