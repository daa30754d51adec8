"""Examples. Each folder is a Django app that `AGENTCORE_APPS` can name."""
