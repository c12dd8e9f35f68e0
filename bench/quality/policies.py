"""The policies that are only contenders: rows in the table of the product's. Nothing here loads torch."""

from ondevice.config import POLICIES, Policy

POLICIES.update(
    (row.name, row)
    for row in (
        Policy(
            "streaming-llm",
            label="StreamingLLM",
            kept="kept as one of the latest",
            scorer="ondevice_bench.quality.retention_policies:StreamingLLM",
        ),
        Policy(
            "snapkv",
            label="SnapKV",
            kept="kept for attention received",
            scorer="ondevice_bench.quality.retention_policies:SnapKV",
            observes="window",
            keeps_per_head=True,
        ),
        Policy(
            "tova",
            label="TOVA",
            kept="kept for attention received",
            scorer="ondevice_bench.quality.retention_policies:TOVA",
            observes="last-token",
        ),
        Policy(
            "h2o",
            label="H2O",
            kept="kept for attention received",
            scorer="ondevice_bench.quality.retention_policies:H2O",
            observes="all",
            keeps_per_head=True,
        ),
        Policy(
            "sirllm",
            label="SirLLM",
            kept="kept for being surprising",
            scorer="ondevice_bench.quality.retention_policies:SirLLM",
            novelty="everything",
        ),
        Policy(
            "random",
            label="random",
            kept="kept by chance",
            scorer="ondevice_bench.quality.retention_policies:Random",
            keeps_per_head=True,
        ),
        Policy(
            "repeat",
            label="repeat",
            kept="kept for repeating the text",
            scorer="ondevice_bench.quality.measured_scores:Measured",
            observes="repetition",
            keeps_per_head=True,
            shares="by-head",
        ),
        Policy(
            "expected",
            label="expected attention",
            kept="kept for expected attention",
            scorer="ondevice_bench.quality.measured_scores:Measured",
            observes="queries",
            keeps_per_head=True,
            shares="by-head",
        ),
    )
)
