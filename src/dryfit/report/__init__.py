"""Any result as something a person reads."""
