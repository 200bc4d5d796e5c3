"""The cost of each block: time, memory and bytes sent, measured or estimated."""
