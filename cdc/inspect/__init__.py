"""Looking at a data folder from outside, whether or not somebody writes to it: its logs, their rows, its soundness."""
