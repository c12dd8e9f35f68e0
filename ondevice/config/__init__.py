"""All settings, frozen and checked when they are made; `setting` says how each is described, once."""

from ondevice.config.engine import (
    ANSWERING,
    DEFAULT_MODEL,
    FIELDS,
    READING,
    SETTINGS,
    DeviceName,
    DtypeName,
    EngineConfig,
    Quantization,
    key_name,
    on_screen,
    option_name,
    with_choices,
)
from ondevice.config.generation import ConversationConfig, GenerationConfig
from ondevice.config.methods import ArtConfig, SlimConfig, SlimLayer, SpecConfig, TierConfig
from ondevice.config.policies import DECODE_POLICIES, POLICIES, DecodePolicy, Policy, SlotShares
from ondevice.config.pot import CATALYSTS_WITH_WORDS, KeyRotation, KvChoice, KvDtype, PotConfig
from ondevice.config.preset import PRESETS, settled
from ondevice.config.setting import Setting, by_key, settings_of, value_of, with_values
