"""The way out of every refusal: what is wrong with a folder and its stream, and how both begin anew."""
