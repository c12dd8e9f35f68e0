"""Numbers made from events: times, history, and which tokens the pot holds."""
