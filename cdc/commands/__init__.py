"""The commands of `shapelog`, a module each; `cdc.cli` mounts them."""
