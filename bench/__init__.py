"""The laboratory of ondevice: speed and quality measured beside others, and the pages made of the figures."""

import ondevice_bench.policies  # noqa: F401  # its rows stand beside the product's from here on
