"""A tool app of the fault suite: a write that can only be looked up, without keys."""
