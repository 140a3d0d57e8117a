"""The commands, a file each, and the options that they share."""
