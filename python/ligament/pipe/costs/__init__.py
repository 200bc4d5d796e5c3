"""What each block costs: time, memory and bytes sent, measured or estimated."""
