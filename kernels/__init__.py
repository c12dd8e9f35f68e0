"""Operations of the pot and of attention; installed as `ondevice.kernels`. They know only torch.

One public function per operation, in a file of its own, with the same signature and the same in-place effect whatever
runs it; each has a float32 reference (suffix `_ref`) in the laboratory, which the tests compare with.
"""
