"""The bodies that clients send, told apart by one key, and the answers they expect back."""
