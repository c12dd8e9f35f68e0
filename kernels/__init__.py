"""Operations of the pot and of attention; installed as `ondevice.kernels`. They know only torch.

One public function per operation, with the same signature and the same in-place effect whatever
runs it; each has a float32 reference (suffix `_ref`) in the laboratory, which the tests compare with.
"""

from ondevice.kernels.attention import attention, attention_mass, attention_peak, observed_attention
from ondevice.kernels.decode_attention import decode_attention
from ondevice.kernels.pot_update import keep_slots_, replace_slots_
from ondevice.kernels.projection import project
from ondevice.kernels.rope import rotate, rotate_half, rotate_with_half_
from ondevice.kernels.rope_attention import rope_attention
from ondevice.kernels.termination import Termination
from ondevice.kernels.token_loss import token_loss

__all__ = [
    "Termination",
    "attention",
    "attention_mass",
    "attention_peak",
    "decode_attention",
    "keep_slots_",
    "observed_attention",
    "project",
    "replace_slots_",
    "rope_attention",
    "rotate",
    "rotate_half",
    "rotate_with_half_",
    "token_loss",
]
