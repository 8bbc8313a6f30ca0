"""What clients say and hear: the Open Inference Protocol over REST, and plain HTTP."""
