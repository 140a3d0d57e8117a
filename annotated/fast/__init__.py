"""The same results sooner: each piece equals its plain form in the paper's own files, by a test."""
