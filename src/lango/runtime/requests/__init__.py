"""Answer, list and expire what turns wait for: approvals, input, credentials, results of tools."""
