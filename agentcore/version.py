"""The version of the code, stored with every run, turn and worker."""

CODE_VERSION = "0.1.0"
