"""How the program is: what holds G, what the slot costs, and each shape."""
