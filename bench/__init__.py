"""The laboratory of ondevice: speed and quality measured beside others, and the pages made of the figures."""
